"""Jinja as Hugging Face chat templates expect it, in a sandbox that ends.

Jinja's own immutable sandbox keeps templates from private attributes and from altering their
input; this one also charges a `RenderBudget` for everything that can grow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from surefoot.text.template.budget import RenderBudget
from surefoot.text.template.rewrite import (
    BUILT,
    CONCAT,
    COUNTED,
    MADE,
    GenerationBlock,
    mark_growth,
)

BUDGET = "<budget>"
"""The render variable that holds the `RenderBudget`; no template can write this name."""

_NO_FILTERS = {"batch", "center", "pprint", "random", "slice", "urlize", "wordwrap", "xmlattr"}
_NO_STR_METHODS = {
    "center",
    "encode",
    "expandtabs",
    "format_map",
    "ljust",
    "maketrans",
    "rjust",
    "translate",
    "zfill",
}
_MAX_INDENT = 64


class TemplateRaisedError(Exception):
    """The template called `raise_exception`; the message is its own."""


class ChatSandbox(ImmutableSandboxedEnvironment):
    """Templates are rendered with a `RenderBudget` under `BUDGET`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationBlock],
            optimized=False,  # constant folding would run filters and operators unpaid
            finalize=_finalize,
            cache_size=0,
        )
        self.filters = {
            name: function for name, function in FILTERS.items() if name not in _NO_FILTERS
        } | _FILTERS
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return mark_growth(super()._parse(source, name, filename))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, int | float) or (isinstance(obj, str) and attr in _NO_STR_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Refuse at once: Jinja would go on, and print nothing."""
        raise SecurityError(f"access to {attribute!r}")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _budget(context)
        if operator == "*":
            budget.take_repeat(left, right)
        elif operator == "**":
            budget.take_power(left, right)
        elif operator == "%" and isinstance(left, str):
            budget.take_format(left, right if isinstance(right, tuple) else (right,))
        result = super().call_binop(context, operator, left, right)
        budget.take(result)
        if isinstance(result, list | tuple):
            budget.take_tree(result)
        return result

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        budget.take_steps()
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
        if isinstance(owner, str):
            args = _pay_for_str_method(budget, owner, obj.__name__, args, kwargs)
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, dict | Namespace):
            budget.take_tree(result)
        else:
            budget.take(result)
        return result


def _budget(context: Context) -> RenderBudget:
    budget = context.parent[BUDGET]
    assert isinstance(budget, RenderBudget)
    return budget


def _pay_for_str_method(
    budget: RenderBudget, text: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Charge what the call will make; returns the arguments to call it with (an iterator that was
    counted is a list now)."""
    budget.take_chars(len(text))
    if method == "replace" and len(args) >= 2:
        budget.take_replace(text, str(args[0]), str(args[1]))
    elif method == "join" and len(args) == 1:
        items = list(_counted(budget, args[0]))
        budget.take_join(text, items)
        return (items,)
    elif method == "format":
        budget.take_format(text, [*args, *kwargs.values()])
    return args


class _Counted:
    """Goes over `items` and charges a step a round. Has a length if `items` has one."""

    def __init__(self, budget: RenderBudget, items: Any) -> None:
        self._budget = budget
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return _counted(self._budget, self._items)


def _counted(budget: RenderBudget, items: Any) -> Iterator[Any]:
    for item in items:
        budget.take_steps()
        yield item


def _printable(budget: RenderBudget, value: Any) -> str:
    budget.take_tree(value, printed=True)
    return str(value)


@pass_context
def _finalize(context: Context, value: Any) -> str:
    return _printable(_budget(context), value)


@pass_context
def _count(context: Context, items: Any) -> _Counted:
    return _Counted(_budget(context), items)


@pass_context
def _made(context: Context, value: Any) -> Any:
    _budget(context).take(value)
    return value


@pass_context
def _built(context: Context, value: Any) -> Any:
    _budget(context).take_tree(value)
    return value


@pass_context
def _concat(context: Context, values: list[Any]) -> str:
    budget = _budget(context)
    return "".join([_printable(budget, value) for value in values])


@pass_context
def _string(context: Context, value: Any) -> str:
    return _printable(_budget(context), value)


@pass_context
def _replace(context: Context, text: Any, old: Any, new: Any, count: int | None = None) -> str:
    whole, part, other = str(text), str(old), str(new)
    _budget(context).take_replace(whole, part, other)
    return whole.replace(part, other, -1 if count is None else count)


@pass_context
def _join(context: Context, items: Any, d: Any = "", attribute: str | int | None = None) -> str:
    budget = _budget(context)
    parts = list(_counted(budget, items))
    if attribute is not None:
        parts = [context.environment.getitem(part, attribute) for part in parts]
    budget.take_join(str(d), parts)
    return str(d).join(map(str, parts))


@pass_context
def _format(context: Context, pattern: Any, *args: Any, **kwargs: Any) -> str:
    _budget(context).take_format(str(pattern), [*args, *kwargs.values()])
    made: str = str(pattern) % (kwargs or args)
    return made


@pass_context
def _indent(
    context: Context, text: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    margin = width if isinstance(width, str) else " " * min(width, _MAX_INDENT)
    lines = str(text).split("\n")
    _budget(context).take_chars(len(margin) * len(lines))
    head = lines[:1] if not first else [margin + lines[0]]
    return "\n".join(head + [margin + line if line or blank else line for line in lines[1:]])


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As `transformers` defines it: no HTML escapes, characters as they are."""
    _budget(context).take_tree(value, printed=True)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=None if indent is None else min(indent, _MAX_INDENT),
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> str:
    raise TemplateRaisedError(str(message))


_FILTERS: dict[str, Callable[..., Any]] = {
    COUNTED: _count,
    MADE: _made,
    BUILT: _built,
    CONCAT: _concat,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "string": _string,
    "tojson": _tojson,
}
