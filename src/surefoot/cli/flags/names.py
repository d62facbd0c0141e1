"""What a person called a setting: refusals name the flag, not the field behind it.

Knows messages and names; must not know what any setting means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import typer
from typer.exceptions import TyperException

from surefoot.config import require_range
from surefoot.errors import ConfigError, ListenError

FLAG_NAMES = {
    "alias": "--alias",
    "allowed_hosts": "--allowed-host",
    "api_key": "--api-key",
    "api_key_file": "--api-key-file",
    "capacity": "--ctx",
    "chunk_alone": "--prefill-chunk-size",
    "chunk_busy": "--prefill-chunk-size",
    "cors_origins": "--cors-origin",
    "drain_timeout": "--drain-timeout",
    "host": "--host",
    "max_draft": "--draft-max",
    "max_queue_depth": "--max-queue-depth",
    "min_tokens_per_round": "--min-tokens-per-round",
    "ngram_max": "--prompt-lookup-ngram-max",
    "ngram_min": "--prompt-lookup-ngram-min",
    "num_threads": "--threads",
    "num_windows": "--parallel",
    "parallel": "--parallel",
    "port": "--port",
    "queue_timeout": "--queue-timeout",
}
"""A `ConfigError`'s field -> the flag of `surefoot serve` that sets it."""


class WrongFlag(TyperException):
    """A wrong command line: one line on stderr and exit code 2."""

    exit_code = 2


def within(low: float, high: float | None = None) -> Callable[..., float | None]:
    """A typer callback: the value is within these, or a `WrongFlag` says flag, value and limit."""

    def check(param: typer.CallbackParam, value: float | None) -> float | None:
        try:
            if value is not None:
                require_range(param.opts[0], value, low, high)
        except ConfigError as error:
            raise WrongFlag(error.message) from None
        return value

    return check


@contextmanager
def naming_flags(names: Mapping[str, str]) -> Iterator[None]:
    """Turn a `ConfigError` about a field of `names` into a `WrongFlag` about its flag. An address
    that is taken is no wrong flag and passes."""
    try:
        yield
    except ListenError:
        raise
    except ConfigError as error:
        raise WrongFlag(in_flags(error, names)) from error


def in_flags(error: ConfigError, names: Mapping[str, str]) -> str:
    """The error's message with flags for fields.

    >>> in_flags(ConfigError("max_draft is 0; it must be 1", param="max_draft"), FLAG_NAMES)
    '--draft-max is 0; it must be 1'
    """
    flag = names.get(error.param or "")
    if flag is None:
        return error.message
    field = re.compile(rf"(?<![\w-]){error.param}\b")
    message = field.sub(flag, error.message, count=1)
    return message if flag in message else f"{flag}: {message}"
