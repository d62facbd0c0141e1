"""Every error that surefoot raises on purpose, with its place in the OpenAI error shape.

One table for the whole product: the class says the HTTP status, the OpenAI `type` and `code`.
The server turns any of these into a reply in one place; the command line prints `str(error)`.
"""

from __future__ import annotations

MAX_MESSAGE = 1000
"""Characters of a message: what is wrong may be quoted, not printed whole."""


def one_line(message: str) -> str:
    """No line break and no escape sequence of whoever wrote what is quoted.

    >>> one_line("tensor a\\nb is missing")
    'tensor a\\\\nb is missing'
    """
    text = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class SurefootError(Exception):
    """Base of the tree. `param` names the request field at fault, if there is one."""

    http_status = 500
    openai_type = "server_error"
    code: str | None = None
    retry_after_s: int | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.param = param


class ConfigError(SurefootError):
    """A setting out of its range: names the field, the value and the limit."""

    openai_type = "invalid_request_error"
    http_status = 400
    code = "invalid_config"


class ListenError(ConfigError):
    """An address that cannot be listened on now: taken, or not this machine's."""


class ModelError(SurefootError):
    """A model file that cannot be served: names the file and what in it is at fault."""

    code = "model_error"


class InvalidRequestError(SurefootError):
    """The request body is wrong: `param` is the field."""

    http_status = 400
    openai_type = "invalid_request_error"
    code = "invalid_value"


class UnsupportedFeatureError(InvalidRequestError):
    """A field that surefoot knows and does not serve (tools, structured output, ...)."""

    code = "unsupported"


class ContextLengthError(InvalidRequestError):
    """The prompt does not fit the context; the message holds both numbers."""

    code = "context_length_exceeded"


class AuthenticationError(SurefootError):
    http_status = 401
    openai_type = "authentication_error"
    code = "invalid_api_key"


class ForbiddenHostError(SurefootError):
    """The Host header names none of the hosts this server answers to."""

    http_status = 403
    openai_type = "invalid_request_error"
    code = "forbidden_host"


class NotFoundError(SurefootError):
    http_status = 404
    openai_type = "invalid_request_error"
    code = "not_found"


class ModelNotFoundError(NotFoundError):
    code = "model_not_found"


class MethodNotAllowedError(SurefootError):
    http_status = 405
    openai_type = "invalid_request_error"
    code = "method_not_allowed"


class PayloadTooLargeError(SurefootError):
    http_status = 413
    openai_type = "invalid_request_error"
    code = "payload_too_large"


class UnsupportedMediaTypeError(SurefootError):
    http_status = 415
    openai_type = "invalid_request_error"
    code = "unsupported_media_type"


class QueueFullError(SurefootError):
    """More requests wait than `max_queue_depth` allows."""

    http_status = 503
    openai_type = "overloaded_error"
    code = "queue_full"
    retry_after_s = 1


class QueueTimeoutError(QueueFullError):
    """A request waited longer than `--queue-timeout` for its turn."""

    code = "queue_timeout"


class NotReadyError(SurefootError):
    """The model is still loading, or the server is shutting down."""

    http_status = 503
    openai_type = "overloaded_error"
    code = "not_ready"
    retry_after_s = 1


class ReplyTimeoutError(SurefootError):
    """A reply took longer than the server's limit for it; its rows were cancelled."""

    http_status = 503
    openai_type = "overloaded_error"
    code = "timeout"
    retry_after_s = 1


class EngineError(SurefootError):
    """A forward failed, or its logits were not finite: our fault, the row ends with it."""

    code = "engine_error"


class OutOfMemoryError(SurefootError):
    """A row's forward could not get the memory it needs; another time it may."""

    http_status = 503
    openai_type = "overloaded_error"
    code = "out_of_memory"
    retry_after_s = 1


class ParityError(SurefootError):
    """Speculated decoding said what plain decoding does not, and no near-tie explains it: our
    fault."""

    code = "parity_error"
