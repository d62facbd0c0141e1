"""Every reply as JSON Schema. Closed: a field that is not written here is in no reply."""

from __future__ import annotations

from typing import Any

from surefoot.server.openapi_bodies import list_of, or_null

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FINISH: Schema = {"enum": ["stop", "length"]}


def closed(fields: Schema, optional: Schema | None = None) -> Schema:
    """An object with these fields, the optional ones perhaps, and no others."""
    return {
        "type": "object",
        "required": list(fields),
        "properties": fields | (optional or {}),
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def reply_schemas() -> Schema:
    """Name -> schema, for the document's components."""
    return {
        "Error": closed(
            {
                "error": closed(
                    {
                        "message": TEXT,
                        "type": TEXT,
                        "param": or_null(TEXT),
                        "code": or_null(TEXT),
                    }
                )
            }
        ),
        "Usage": closed(
            {
                "prompt_tokens": COUNT,
                "completion_tokens": COUNT,
                "total_tokens": COUNT,
                "prompt_tokens_details": closed({"cached_tokens": COUNT}),
            }
        ),
        "Timings": _timings(),
        "Model": closed(
            {
                "id": TEXT,
                "object": {"const": "model"},
                "created": COUNT,
                "owned_by": TEXT,
            }
        ),
        "Models": closed({"object": {"const": "list"}, "data": list_of(ref("Model"))}),
        "Health": closed({"status": {"enum": ["ok", "loading", "draining", "failed"]}}),
        "Props": _props(),
        **_chat(),
        **_completion(),
    }


def _timings() -> Schema:
    return closed(
        {
            "prompt_n": COUNT,
            "prompt_ms": NUMBER,
            "prompt_per_second": NUMBER,
            "predicted_n": COUNT,
            "predicted_ms": NUMBER,
            "predicted_per_second": NUMBER,
            "cache_n": COUNT,
        },
        {
            "draft_n": COUNT,
            "draft_n_accepted": COUNT,
            "draft_rounds": COUNT,
            "draft_kind": {"const": "prompt-lookup"},
        },
    )


def _props() -> Schema:
    """Open: what the model's side adds depends on how the server was started."""
    fields = {
        "version": TEXT,
        "model": TEXT,
        "context_length": COUNT,
        "chat_template": {"type": "boolean"},
        "limits": {"type": "object"},
    }
    return closed(fields) | {"additionalProperties": True}


def _envelope(kind: str, choice: Schema) -> Schema:
    return {
        "id": TEXT,
        "object": {"const": kind},
        "created": COUNT,
        "model": TEXT,
        "system_fingerprint": TEXT,
        "choices": list_of(choice),
    }


def _whole(kind: str, choice: Schema) -> Schema:
    fields = _envelope(kind, choice)
    return closed(fields | {"usage": ref("Usage"), "timings": ref("Timings")})


def _chunk(kind: str, choice: Schema) -> Schema:
    """`usage` is null but in the last chunk, where it was asked for; `timings` come with a
    choice's end, and with each of its texts under `timings_per_token`."""
    optional = {"usage": or_null(ref("Usage")), "timings": ref("Timings")}
    return closed(_envelope(kind, choice), optional)


def _chat() -> Schema:
    token: Schema = {"token": TEXT, "logprob": NUMBER, "bytes": list_of(COUNT)}
    entry = closed(token | {"top_logprobs": list_of(closed(token))})
    logprobs = or_null(closed({"content": list_of(entry), "refusal": {"type": "null"}}))
    message = closed({"role": {"const": "assistant"}, "content": TEXT, "refusal": {"type": "null"}})
    place: Schema = {"index": COUNT, "logprobs": logprobs}
    delta = closed({}, {"role": {"const": "assistant"}, "content": TEXT})
    return {
        "ChatReply": _whole(
            "chat.completion", closed(place | {"message": message, "finish_reason": FINISH})
        ),
        "ChatChunk": _chunk(
            "chat.completion.chunk",
            closed(place | {"delta": delta, "finish_reason": or_null(FINISH)}),
        ),
    }


def _completion() -> Schema:
    logprobs = or_null(
        closed(
            {
                "tokens": list_of(TEXT),
                "token_logprobs": list_of(NUMBER),
                "top_logprobs": list_of({"type": "object", "additionalProperties": NUMBER}),
                "text_offset": list_of(COUNT),
            }
        )
    )
    place: Schema = {"index": COUNT, "text": TEXT, "logprobs": logprobs}
    return {
        "CompletionReply": _whole("text_completion", closed(place | {"finish_reason": FINISH})),
        "CompletionChunk": _chunk(
            "text_completion", closed(place | {"finish_reason": or_null(FINISH)})
        ),
    }
