"""The OpenAI error shape, and the one place where errors become replies.

Faults of ours are told in general words: their detail may name a path or a library, so it goes
to the log alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response

from surefoot.errors import SurefootError

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

INTERNAL_MESSAGE = "the server met an unexpected error; the log has the details"
ENGINE_MESSAGE = "the model failed on this request; the log has the details"


def encode_json(content: object) -> bytes:
    """Compact UTF-8 JSON. Not-a-number is never written: logits are checked before."""
    return _ENCODER.encode(content).encode("utf-8", "replace")


class JsonReply(Response):
    media_type = "application/json"

    def __init__(
        self, content: object, status_code: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(encode_json(content), status_code, headers)


def error_object(
    message: str, error_type: str, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def error_body(error: SurefootError) -> dict[str, object]:
    """What the client is told. A 500 keeps its code and loses its message."""
    message = ENGINE_MESSAGE if error.http_status == 500 else error.message
    return error_object(message, error.openai_type, error.param, error.code)


def error_reply(error: SurefootError) -> JsonReply:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.http_status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.http_status == 413:
        # What is left of the body must not be taken for the next request.
        headers["Connection"] = "close"
    return JsonReply(error_body(error), error.http_status, headers)


def internal_error_reply() -> JsonReply:
    return JsonReply(error_object(INTERNAL_MESSAGE, "server_error", code="internal_error"), 500)
