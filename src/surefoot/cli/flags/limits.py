"""One flag for each limit of the server, made from one table; `docs/limits.md` shows the same.

Owns names, help and units of the flags. Ranges and defaults are those of `server.limits`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Annotated, Any

import typer

from surefoot.app.kv_plan import parse_bytes
from surefoot.server.limits import BodyLimits, ConnectionLimits, ReplyLimits, RequestLimits

Values = Mapping[str, float]
"""Field of a limits dataclass -> value."""

SECTIONS = (BodyLimits, RequestLimits, ReplyLimits, ConnectionLimits)


class Unit(Enum):
    COUNT = "N"
    SECONDS = "SECONDS"
    BYTES = "BYTES"


@dataclass(frozen=True, slots=True)
class LimitFlag:
    """`field` names one of the fields of `SECTIONS`."""

    flag: str
    field: str
    unit: Unit
    help: str

    @property
    def default(self) -> float:
        values: dict[str, float] = {}
        for section in SECTIONS:
            values |= asdict(section())
        return values[self.field]

    @property
    def shown_default(self) -> str:
        """As a person would write it."""
        if self.unit is not Unit.BYTES:
            return f"{self.default:g}"
        count = int(self.default)
        return f"{count >> 20}MiB" if count % 2**20 == 0 else f"{count >> 10}KiB"


LIMIT_FLAGS = (
    LimitFlag("--max-body-size", "max_body_bytes", Unit.BYTES, "A request's body."),
    LimitFlag(
        "--max-buffered-bodies", "max_buffered_bytes", Unit.BYTES, "Bodies being read, together."
    ),
    LimitFlag("--max-json-depth", "max_json_depth", Unit.COUNT, "Levels of nesting in a body."),
    LimitFlag("--max-messages", "max_messages", Unit.COUNT, "Messages of a chat."),
    LimitFlag("--max-content-parts", "max_parts", Unit.COUNT, "Text parts of all its messages."),
    LimitFlag("--max-prompts", "max_prompts", Unit.COUNT, "Prompts of a completion."),
    LimitFlag("--max-n", "max_n", Unit.COUNT, "Choices of one prompt (n)."),
    LimitFlag("--max-choices", "max_rows", Unit.COUNT, "Choices of a request, all prompts."),
    LimitFlag(
        "--max-prompt-tokens",
        "max_prompt_tokens",
        Unit.COUNT,
        "Tokens of a prompt; 0: the context alone.",
    ),
    LimitFlag("--max-logit-bias", "max_logit_bias", Unit.COUNT, "Entries of logit_bias."),
    LimitFlag("--max-stop-strings", "max_stop", Unit.COUNT, "Stop strings."),
    LimitFlag("--max-stop-length", "max_stop_chars", Unit.COUNT, "Characters of a stop string."),
    LimitFlag("--max-stop-tokens", "max_stop_token_ids", Unit.COUNT, "Ids of stop_token_ids."),
    LimitFlag(
        "--reply-timeout", "max_total_s", Unit.SECONDS, "A reply from first to last; 0: none."
    ),
    LimitFlag(
        "--idle-timeout", "max_idle_s", Unit.SECONDS, "A reply without a new token; 0: none."
    ),
    LimitFlag("--max-connections", "max_connections", Unit.COUNT, "Connections at once."),
    LimitFlag(
        "--max-header-size", "max_header_bytes", Unit.BYTES, "Request line and headers together."
    ),
    LimitFlag("--max-headers", "max_headers", Unit.COUNT, "Headers of a request."),
    LimitFlag("--header-timeout", "header_timeout_s", Unit.SECONDS, "Until headers are whole."),
    LimitFlag("--body-timeout", "body_timeout_s", Unit.SECONDS, "Until a body is whole."),
    LimitFlag(
        "--keepalive-timeout", "keepalive_timeout_s", Unit.SECONDS, "A connection between requests."
    ),
    LimitFlag(
        "--write-timeout", "write_stall_s", Unit.SECONDS, "A reply that its client does not read."
    ),
    LimitFlag(
        "--send-buffer-size", "send_buffer_bytes", Unit.BYTES, "Unread bytes left to the system."
    ),
)

LIMIT_FLAG_NAMES = {each.field: each.flag for each in LIMIT_FLAGS}


@dataclass(frozen=True, slots=True)
class Limits:
    """The sections of a `ServerConfig`."""

    body: BodyLimits
    request: RequestLimits
    reply: ReplyLimits
    connection: ConnectionLimits


def limits_from(values: Values) -> Limits:
    """Raises `ConfigError` naming field, value and limit."""

    def given(section: type) -> dict[str, Any]:
        known = {each.name for each in fields(section)}
        return {name: value for name, value in values.items() if name in known}

    return Limits(
        BodyLimits(**given(BodyLimits)),
        RequestLimits(**given(RequestLimits)),
        ReplyLimits(**given(ReplyLimits)),
        ConnectionLimits(**given(ConnectionLimits)),
    )


def with_limit_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a flag for every limit, in place of its parameter `limits: Values`."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != "limits"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        limits = {each.field: given.pop(each.field) for each in LIMIT_FLAGS}
        command(**given, limits=limits)

    flags = [_parameter(each) for each in LIMIT_FLAGS]
    wrapper.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    return wrapper


def _parameter(limit: LimitFlag) -> inspect.Parameter:
    sizes = limit.unit is Unit.BYTES
    option = typer.Option(
        limit.flag,
        help=limit.help,
        metavar=limit.unit.value,
        rich_help_panel="Limits",
        parser=_size if sizes else None,
    )
    kind = float if limit.unit is Unit.SECONDS else int
    return inspect.Parameter(
        limit.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=limit.shown_default if sizes else limit.default,
        annotation=Annotated[kind, option],
    )


def _size(text: str) -> int:
    size = parse_bytes(text)
    if size is None:
        raise typer.BadParameter(f"{text!r} is no number of bytes such as 512KiB or 8MiB.")
    return size
