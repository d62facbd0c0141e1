"""The ASGI application: routes, and how a request runs through the server's parts.

Owns no field rule, no reply form and no model. It serves from the first moment: until the state
is ready every route that needs the model answers 503.
"""

from __future__ import annotations

import secrets
import time
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import surefoot
from surefoot.errors import (
    MethodNotAllowedError,
    ModelNotFoundError,
    NotFoundError,
    UnsupportedFeatureError,
)
from surefoot.server.apis.openai_chat import ID_PREFIX as CHAT_PREFIX
from surefoot.server.apis.openai_chat import ChatFormat
from surefoot.server.apis.openai_completions import ID_PREFIX as COMPLETION_PREFIX
from surefoot.server.apis.openai_completions import CompletionFormat
from surefoot.server.auth import AllowedHosts, ApiKeys
from surefoot.server.body import BodyReader
from surefoot.server.edge import Edge
from surefoot.server.gate import Gate, Job
from surefoot.server.generation import ChoiceFormat, Envelope, Json, reply_chunks, whole_reply
from surefoot.server.limits import ServerConfig
from surefoot.server.metrics import CONTENT_TYPE, ServerMetrics
from surefoot.server.openapi import openapi_document
from surefoot.server.replies import JsonReply, error_reply
from surefoot.server.rows import LiveRows
from surefoot.server.schema import CommonBody, parse_chat, parse_completion
from surefoot.server.sse import SseReply, watching
from surefoot.server.state import ServedModel, ServerState
from surefoot.server.unsupported import ignored_header
from surefoot.server.workers import Workers

UNSERVED = {
    "/v1/embeddings": "embeddings",
    "/v1/responses": "the Responses API",
    "/v1/moderations": "moderations",
    "/v1/images/generations": "images",
    "/v1/audio/speech": "audio",
    "/v1/audio/transcriptions": "audio",
}
"""OpenAI routes that are a 400 saying so, rather than a 404."""


class Api:
    """The endpoints, and the parts they share."""

    def __init__(self, state: ServerState, config: ServerConfig) -> None:
        self._state = state
        self._config = config
        self._workers = Workers()
        self._bodies = BodyReader(config.body, self._workers)
        self._gate = Gate(config.request.max_prompt_tokens, self._workers)
        self._document = openapi_document(config)
        self.metrics = ServerMetrics(state)
        self.live = LiveRows(self.metrics)

    async def chat_completions(self, request: Request) -> Response:
        model = self._state.require_model()
        limits = self._config.request
        body = await self._bodies.read(request, partial(parse_chat, limits=limits))
        job = await self._gate.chat_job(model, body)
        form = ChatFormat(model.tokenizer)
        return await self._reply(request, job, form, envelope(CHAT_PREFIX, model), body)

    async def completions(self, request: Request) -> Response:
        model = self._state.require_model()
        limits = self._config.request
        body = await self._bodies.read(request, partial(parse_completion, limits=limits))
        job = await self._gate.completion_job(model, body)
        form = CompletionFormat(model.tokenizer, job.echo)
        return await self._reply(request, job, form, envelope(COMPLETION_PREFIX, model), body)

    async def _reply(
        self, request: Request, job: Job, form: ChoiceFormat, head: Envelope, body: CommonBody
    ) -> Response:
        rows = self.live.submit(self._state.require_model().sink, job.rows)
        headers = ignored_header(body.model_extra or ())
        limits = self._config.reply
        try:
            async with watching(request.receive, rows.abandon):
                if not job.stream:
                    reply = await whole_reply(job, rows, form, head, limits)
                    return gone() if reply is None else JsonReply(reply, headers=headers)
                await rows.wait_for_first(limits)
        except BaseException:
            rows.abandon()
            raise
        return SseReply(reply_chunks(job, rows, form, head, limits), rows.abandon, headers)

    async def models(self, request: Request) -> Response:
        return JsonReply({"object": "list", "data": [model_card(self._state.require_model())]})

    async def model(self, request: Request) -> Response:
        model = self._state.require_model()
        if not model.answers_to(request.path_params["id"]):
            raise ModelNotFoundError("no such model is served here", param="model")
        return JsonReply(model_card(model))

    async def health(self, request: Request) -> Response:
        status = self._state.status
        headers = {} if status == "ok" else {"Retry-After": "1"}
        return JsonReply({"status": status}, 200 if status == "ok" else 503, headers)

    async def show_metrics(self, request: Request) -> Response:
        return Response(self.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def props(self, request: Request) -> Response:
        model = self._state.require_model()
        return JsonReply(
            {
                "version": surefoot.__version__,
                "model": model.id,
                "context_length": model.context_length,
                "chat_template": model.encode_chat is not None,
                "limits": self._config.limits(),
                **model.properties(),
            }
        )

    async def openapi(self, request: Request) -> Response:
        return JsonReply(self._document)

    def count(self, path: str, method: str, status: int) -> None:
        route = path if path in KNOWN_PATHS else "other"
        known = method if method in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self.metrics.http_requests.labels(route, known, str(status)).inc()

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self.chat_completions, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{id:path}", self.model, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.show_metrics, methods=["GET"]),
            Route("/props", self.props, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
            *(Route(path, unserved, methods=["POST"]) for path in UNSERVED),
        ]

    def close(self) -> None:
        """Give up what waits for a thread. For the end of the server."""
        self._workers.close()


KNOWN_PATHS = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics", "/props"}
    | {"/openapi.json"}
)


async def unserved(request: Request) -> Response:
    feature = UNSERVED[request.url.path]
    raise UnsupportedFeatureError(f"this server does not serve {feature}")


def envelope(prefix: str, model: ServedModel) -> Envelope:
    return Envelope(prefix + secrets.token_hex(12), int(time.time()), model.id)


def gone() -> Response:
    """For a client that left: nobody reads it, the log and the metrics do."""
    return Response(status_code=499)


def model_card(model: ServedModel) -> Json:
    return {"id": model.id, "object": "model", "created": model.created, "owned_by": "surefoot"}


async def http_error(request: Request, error: Exception) -> Response:
    """The router's own 404 and 405, in OpenAI's shape."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        reply = error_reply(MethodNotAllowedError("this route does not take that method"))
        reply.headers.update(error.headers or {})
        return reply
    return error_reply(NotFoundError("there is no such route"))


def create_app(state: ServerState, config: ServerConfig) -> Starlette:
    """The application; `app.state.api` is its `Api`. Every error it answers has OpenAI's shape."""
    api = Api(state, config)
    edge = Middleware(
        Edge,
        keys=ApiKeys(config.api_keys),
        hosts=AllowedHosts(config.allowed_hosts),
        count=api.count,
    )
    app = Starlette(
        routes=api.routes(),
        middleware=[*cors(config.cors_origins), edge],
        exception_handlers={HTTPException: http_error},
    )
    app.router.redirect_slashes = False
    app.state.api = api
    return app


def cors(origins: tuple[str, ...]) -> list[Middleware]:
    """Nothing without an allow list. Outside `Edge`, so that errors carry the headers too and a
    preflight needs no key."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type", "X-Request-Id"),
            expose_headers=("X-Request-Id", "X-Surefoot-Ignored", "Retry-After"),
        )
    ]
