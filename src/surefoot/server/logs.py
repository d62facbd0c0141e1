"""Log records that know their request.

`Edge` notes the request id for everything that runs on a request's behalf; the formatters here
print it. Prompts and replies never reach a logger.
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar

current_request_id: ContextVar[str] = ContextVar("surefoot_request_id", default="-")

FIELDS = ("milliseconds",)
"""What records may carry beside their message (`extra=`)."""


class RequestIdFilter(logging.Filter):
    """For a handler: gives every record the `request_id` it was logged under."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = current_request_id.get()
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, `request_id`, and `error` with
    the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "-"),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """`time level logger [request id] message`, the id only where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        request_id = getattr(record, "request_id", "-")
        shown = "" if request_id == "-" else f"[{request_id}] "
        head = f"{self.formatTime(record)} {record.levelname} {record.name}: {shown}"
        return head + super().format(record)


def log_handler(*, as_json: bool) -> logging.Handler:
    """A handler to standard error for the root logger."""
    handler = logging.StreamHandler()
    handler.addFilter(RequestIdFilter())
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    return handler
