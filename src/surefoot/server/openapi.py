"""The OpenAPI document of `/openapi.json`: the routes, and every status that each may answer.

Bodies and replies are written in `openapi_bodies` and `openapi_replies`; a test asks the server
whatever this document allows, and holds the answers to it.
"""

from __future__ import annotations

from typing import Any

import surefoot
from surefoot.server.limits import ServerConfig
from surefoot.server.openapi_bodies import chat_body, completion_body
from surefoot.server.openapi_replies import ref, reply_schemas

Schema = dict[str, Any]

STATUSES = {
    400: "A field breaks its rule, or is not served; or the request is no HTTP.",
    401: "A valid API key is needed.",
    403: "The Host header is none of this server's.",
    404: "No such model.",
    405: "The route does not take that method.",
    408: "Headers or body took too long.",
    413: "The body is beyond its limit.",
    415: "The Content-Type is not application/json.",
    431: "The headers are beyond their limit.",
    500: "A fault of the server; its log has the details.",
    503: "Not ready, full, or out of time: try again after Retry-After seconds.",
}

EVERYWHERE = (400, 403, 405, 408, 431, 500, 503)
"""Statuses that any route may answer, most of them outside the application."""

POSTED = (404, 413, 415)
"""Further ones of the routes that take a body."""

REQUEST_ID: Schema = {
    "X-Request-Id": {
        "description": "The client's own, or a new one.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    }
}
RETRY_AFTER: Schema = {
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}
}
IGNORED: Schema = {
    "X-Surefoot-Ignored": {
        "description": "Fields of the body that nobody read.",
        "schema": {"type": "string"},
    }
}


def openapi_document(config: ServerConfig) -> Schema:
    """OpenAPI 3.2, which can describe the events of a stream, for a server so configured."""
    keyed = bool(config.api_keys)
    document: Schema = {
        "openapi": "3.2.0",
        "info": {
            "title": "surefoot",
            "version": surefoot.__version__,
            "description": "An LLM inference server that speaks OpenAI's HTTP API.",
        },
        "paths": _paths(config, keyed),
        "components": {"schemas": reply_schemas()},
    }
    if keyed:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _paths(config: ServerConfig, keyed: bool) -> Schema:
    limits = config.request
    chat = _generation("Chat", chat_body(limits), "ChatReply", "ChatChunk", keyed)
    completion = _generation(
        "Text completion", completion_body(limits), "CompletionReply", "CompletionChunk", keyed
    )
    model = _reading("One model", "Model", keyed, further=(404,))
    model["parameters"] = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    ]
    health = _reading("Whether a chat would be answered", "Health", keyed=False)
    health["security"] = []
    health["responses"]["503"] = _answer("Not yet, or no more.", _json("Health"), RETRY_AFTER)
    return {
        "/v1/chat/completions": {"post": chat},
        "/v1/completions": {"post": completion},
        "/v1/models": {"get": _reading("The one served model", "Models", keyed)},
        "/v1/models/{id}": {"get": model},
        "/health": {"get": health},
        "/props": {"get": _reading("The settings in force", "Props", keyed)},
        "/metrics": {"get": _metrics(keyed)},
        "/openapi.json": {"get": _document(keyed)},
    }


def _generation(summary: str, body: Schema, whole: str, chunk: str, keyed: bool) -> Schema:
    content = _json(whole) | {"text/event-stream": {"itemSchema": _event(chunk)}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _answer("The reply, whole or as server-sent events.", content, IGNORED),
            **_errors(keyed, POSTED),
        },
    }


def _event(chunk: str) -> Schema:
    """One server-sent event. `[DONE]` ends a stream that went well, an Error one that did not."""
    content = {"anyOf": [ref(chunk), ref("Error")]}
    return {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {
                "anyOf": [
                    {"const": "[DONE]"},
                    {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": content,
                    },
                ]
            }
        },
    }


def _reading(summary: str, schema: str, keyed: bool, further: tuple[int, ...] = ()) -> Schema:
    answers = {"200": _answer(summary + ".", _json(schema)), **_errors(keyed, further)}
    return {"summary": summary, "responses": answers}


def _metrics(keyed: bool) -> Schema:
    content = {"text/plain": {"schema": {"type": "string"}}}
    answers = {"200": _answer("Prometheus text format.", content), **_errors(keyed)}
    return {"summary": "Metrics", "responses": answers}


def _document(keyed: bool) -> Schema:
    content = {"application/json": {"schema": {"type": "object"}}}
    answers = {"200": _answer("OpenAPI 3.2.", content), **_errors(keyed)}
    return {"summary": "This document", "responses": answers}


def _errors(keyed: bool, further: tuple[int, ...] = ()) -> Schema:
    statuses = sorted({*EVERYWHERE, *further, *((401,) if keyed else ())})
    return {
        str(status): _answer(
            STATUSES[status], _json("Error"), RETRY_AFTER if status == 503 else None
        )
        for status in statuses
    }


def _json(name: str) -> Schema:
    return {"application/json": {"schema": ref(name)}}


def _answer(description: str, content: Schema, headers: Schema | None = None) -> Schema:
    return {
        "description": description,
        "content": content,
        "headers": REQUEST_ID | (headers or {}),
    }
