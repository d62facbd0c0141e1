"""The two request bodies as JSON Schema: from the pydantic models, with the forms that they parse
by hand and this server's limits added.

Says what one field may be. Rules between fields (`stream_options` only with `stream`) and those
of the model (vocabulary, context) are a 400 that no schema tells beforehand.
"""

from __future__ import annotations

from typing import Any

from surefoot.server.limits import RequestLimits
from surefoot.server.schema import ChatBody, CommonBody, CompletionBody

Schema = dict[str, Any]

TOKEN_KEY = "^(0|[1-9][0-9]{0,9})$"

CHAT_EXAMPLE = {
    "messages": [{"role": "user", "content": "Name three kinds of tea."}],
    "max_tokens": 32,
    "temperature": 0,
}
COMPLETION_EXAMPLE = {"prompt": "Three kinds of tea:", "max_tokens": 16, "temperature": 0}


def chat_body(limits: RequestLimits) -> Schema:
    return _body(ChatBody, limits, {"messages": _messages(limits)}) | {"example": CHAT_EXAMPLE}


def completion_body(limits: RequestLimits) -> Schema:
    by_hand = {"prompt": _prompt(limits), "best_of": _choices(limits)}
    return _body(CompletionBody, limits, by_hand) | {"example": COMPLETION_EXAMPLE}


def _body(form: type[CommonBody], limits: RequestLimits, by_hand: Schema) -> Schema:
    schema = form.model_json_schema()
    properties: Schema = schema["properties"]
    common = {
        "n": _choices(limits),
        "stop": _stop(limits),
        "stop_token_ids": or_null(list_of(_TOKEN, limits.max_stop_token_ids)),
        "logit_bias": or_null(_logit_bias(limits)),
        "stream_options": or_null(_STREAM_OPTIONS),
    }
    for name, field in (common | by_hand).items():
        assert name in properties, name
        properties[name] = field
    for field in properties.values():
        field.pop("title", None)
        field.pop("default", None)
        for option in field.get("anyOf", ()):
            _name_bounds(option)
    return {
        "type": "object",
        "required": schema["required"],
        "properties": properties,
        "additionalProperties": True,
    }


def _name_bounds(form: Schema) -> None:
    """pydantic leaves bounds that stand behind a validator of ours under its own names."""
    for name, keyword in (("ge", "minimum"), ("le", "maximum")):
        if name in form:
            form[keyword] = form.pop(name)


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(items: Schema, most: int | None = None, least: int = 0) -> Schema:
    schema: Schema = {"type": "array", "items": items}
    if least:
        schema["minItems"] = least
    return schema if most is None else schema | {"maxItems": most}


_TOKEN: Schema = {"type": "integer", "minimum": 0}

_STREAM_OPTIONS: Schema = {
    "type": "object",
    "properties": {"include_usage": {"type": ["boolean", "null"]}},
}

_TEXT_PART: Schema = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}


def _choices(limits: RequestLimits) -> Schema:
    most = min(limits.max_n, limits.max_rows)
    return or_null({"type": "integer", "minimum": 1, "maximum": most})


def _stop(limits: RequestLimits) -> Schema:
    one = {"type": "string", "minLength": 1, "maxLength": limits.max_stop_chars}
    return {"anyOf": [one, list_of(one, limits.max_stop), {"type": "null"}]}


def _logit_bias(limits: RequestLimits) -> Schema:
    return {
        "type": "object",
        "maxProperties": limits.max_logit_bias,
        "propertyNames": {"pattern": TOKEN_KEY},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
    }


def _messages(limits: RequestLimits) -> Schema:
    parts = list_of(_TEXT_PART, limits.max_parts)
    message = {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"type": "string", "minLength": 1, "maxLength": 64},
            "content": {"anyOf": [{"type": "string"}, parts]},
            "name": {"type": ["string", "null"]},
        },
    }
    return list_of(message, limits.max_messages, least=1)


def _prompt(limits: RequestLimits) -> Schema:
    ids = list_of(_TOKEN, least=1)
    one = {"anyOf": [{"type": "string"}, ids]}
    return {"anyOf": [{"type": "string"}, ids, list_of(one, limits.max_prompts, least=1)]}
