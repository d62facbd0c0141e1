"""Fields that OpenAI clients send and surefoot does not serve: each is a 400 that says so.

A value that changes nothing (`null`, an empty list, `tool_choice: "none"`) passes. Also here:
which names count as unknown, for the `X-Surefoot-Ignored` header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from surefoot.errors import UnsupportedFeatureError
from surefoot.server.body import JsonObject
from surefoot.server.fields import broken_rule, refuse, shown

_EMPTY: tuple[object, ...] = (None, False, "", [], {})

_HARMLESS: dict[str, tuple[object, ...]] = {
    "tools": _EMPTY,
    "tool_choice": (*_EMPTY, "none", "auto"),
    "functions": _EMPTY,
    "function_call": (*_EMPTY, "none", "auto"),
    "audio": _EMPTY,
    "modalities": (*_EMPTY, ["text"]),
    "prediction": _EMPTY,
    "web_search_options": (None,),
    "suffix": _EMPTY,
    "use_beam_search": _EMPTY,
    "grammar": _EMPTY,
    "json_schema": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "structured_outputs": (None,),
}
"""Field to the values that ask for nothing."""

SILENT = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "store", "service_tier"}
    | {"parallel_tool_calls", "response_format", *_HARMLESS}
)
"""Known, without effect here, and not worth a warning header."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_NAMED = 20
_MAX_NAME = 64


def refuse_unsupported(data: JsonObject) -> None:
    """Raise `UnsupportedFeatureError` for the first field that asks for what is not served."""
    for name, harmless in _HARMLESS.items():
        if name in data and data[name] not in harmless:
            refuse(name, f"{name} is not supported by this server")
    _check_response_format(data.get("response_format"))


def _check_response_format(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise broken_rule("response_format", "an object with a type", value)
    kind = value.get("type")
    if kind == "text":
        return
    if kind in ("json_object", "json_schema"):
        raise UnsupportedFeatureError(
            f"response_format of type {shown(kind)} is not supported by this server;"
            ' only "text" is',
            param="response_format.type",
        )
    raise broken_rule("response_format.type", '"text"', kind)


def ignored_header(unknown: Iterable[str]) -> dict[str, str]:
    """The warning header for body fields that nobody read; empty when there are none. A field
    without a name is shown as `?`: a header's value cannot end in a blank."""
    names = [_UNSAFE.sub("?", name[:_MAX_NAME]) or "?" for name in unknown if name not in SILENT]
    if not names:
        return {}
    return {"X-Surefoot-Ignored": ", ".join(names[:_MAX_NAMED])}
