"""The fields whose form one type cannot say: parsed by hand, each with its own message.

Every function takes the raw JSON value and returns the parsed form, or raises
`InvalidRequestError` with the exact place as `param` (`messages[2].content[0].text`).
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from surefoot.errors import InvalidRequestError, UnsupportedFeatureError

Prompt = str | tuple[int, ...]
"""Text to encode, or token ids as they are."""

_TOKEN_KEY = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_SHOWN = 80


def shown(value: object) -> str:
    """The value as JSON, short enough for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def broken_rule(param: str, rule: str, value: object) -> InvalidRequestError:
    return InvalidRequestError(f"{param} must be {rule}; got {shown(value)}", param=param)


def refuse(param: str, message: str) -> NoReturn:
    raise UnsupportedFeatureError(message, param=param)


def whole_number(value: object) -> object:
    """`16.0` is 16: some languages have no other number. All else passes on as it is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def stop_strings(value: object, max_stop: int, max_chars: int) -> tuple[str, ...]:
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise broken_rule("stop", "a string or a list of strings", value)
    if len(items) > max_stop:
        raise InvalidRequestError(
            f"stop holds {len(items)} strings; the limit is {max_stop}", param="stop"
        )
    for index, item in enumerate(items):
        param = "stop" if items is not value else f"stop[{index}]"
        if not isinstance(item, str) or not 1 <= len(item) <= max_chars:
            raise broken_rule(param, f"a string of 1 to {max_chars} characters", item)
    return tuple(items)


def choices(value: object, param: str, limit: int) -> int:
    number = whole_number(value)
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= limit:
        raise broken_rule(param, f"an integer from 1 to {limit}", value)
    return number


def stop_token_ids(value: object, limit: int) -> tuple[int, ...]:
    if isinstance(value, list) and len(value) > limit:
        raise InvalidRequestError(
            f"stop_token_ids holds {len(value)} ids; the limit is {limit}", param="stop_token_ids"
        )
    return token_ids(value, "stop_token_ids")


def token_ids(value: object, param: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise broken_rule(param, "a list of token ids", value)
    for index, item in enumerate(value):
        if not is_integer(item) or item < 0:
            raise broken_rule(f"{param}[{index}]", "a token id", item)
    return tuple(value)


def logit_bias(value: object, max_entries: int) -> tuple[tuple[int, float], ...]:
    """Keys are token ids written as decimal strings, in JSON's only key form."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise broken_rule("logit_bias", "an object of token ids to numbers", value)
    if len(value) > max_entries:
        raise InvalidRequestError(
            f"logit_bias holds {len(value)} entries; the limit is {max_entries}",
            param="logit_bias",
        )
    return tuple(_bias(key, bias) for key, bias in value.items())


def _bias(key: str, bias: object) -> tuple[int, float]:
    if not _TOKEN_KEY.fullmatch(key):
        raise InvalidRequestError(
            f"logit_bias has the key {shown(key)}; keys must be token ids", param="logit_bias"
        )
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
        raise broken_rule(f"logit_bias.{key}", "a number from -100 to 100", bias)
    return int(key), float(bias)


def include_usage(value: object) -> bool:
    """`stream_options` to its one field that is served."""
    if value is None:
        return False
    if not isinstance(value, dict):
        raise broken_rule("stream_options", "an object", value)
    wanted = value.get("include_usage")
    if wanted is not None and not isinstance(wanted, bool):
        raise broken_rule("stream_options.include_usage", "true or false", wanted)
    return bool(wanted)


def check_best_of(best_of: int | None, num_choices: int) -> None:
    if best_of is None or best_of == num_choices:
        return
    if best_of < num_choices:
        raise InvalidRequestError(
            f"best_of is {best_of}; it must be at least n, which is {num_choices}",
            param="best_of",
        )
    refuse("best_of", "best_of above n is not supported: every choice made is returned")


def messages(value: object, max_messages: int, max_parts: int) -> tuple[dict[str, object], ...]:
    """Each message as the template sees it: `role`, `content` (one string) and `name` if given."""
    if not isinstance(value, list) or not value:
        raise broken_rule("messages", "a list of at least one message", value)
    if len(value) > max_messages:
        raise InvalidRequestError(
            f"messages holds {len(value)} messages; the limit is {max_messages}",
            param="messages",
        )
    parts = sum(len(m["content"]) for m in value if _has_parts(m))
    if parts > max_parts:
        raise InvalidRequestError(
            f"messages hold {parts} content parts; the limit is {max_parts}", param="messages"
        )
    return tuple(_message(item, f"messages[{index}]") for index, item in enumerate(value))


def _has_parts(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("content"), list)


def _message(value: object, param: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise broken_rule(param, "an object with role and content", value)
    for feature in ("tool_calls", "function_call", "audio"):
        if value.get(feature):
            refuse(f"{param}.{feature}", f"{feature} in messages is not supported")
    role, name = value.get("role"), value.get("name")
    if not isinstance(role, str) or not 1 <= len(role) <= 64:
        raise broken_rule(f"{param}.role", "a string of 1 to 64 characters", role)
    parsed: dict[str, object] = {"role": role, "content": _content(value.get("content"), param)}
    if name is not None:
        if not isinstance(name, str):
            raise broken_rule(f"{param}.name", "a string", name)
        parsed["name"] = name
    return parsed


def _content(value: object, message_param: str) -> str:
    param = f"{message_param}.content"
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise broken_rule(param, "a string or a list of text parts", value)
    return "".join(_text_part(part, f"{param}[{index}]") for index, part in enumerate(value))


def _text_part(value: object, param: str) -> str:
    if not isinstance(value, dict):
        raise broken_rule(param, "an object with type and text", value)
    kind = value.get("type")
    if not isinstance(kind, str):
        raise broken_rule(f"{param}.type", '"text"', kind)
    if kind != "text":
        refuse(f"{param}.type", f"content parts of type {shown(kind)} are not supported")
    text = value.get("text")
    if not isinstance(text, str):
        raise broken_rule(f"{param}.text", "a string", text)
    return text


def prompts(value: object, max_prompts: int) -> tuple[Prompt, ...]:
    """A string, a list of strings, a list of token ids, or a list of such lists."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise broken_rule("prompt", "a string, a list of strings, or token ids", value)
    if is_integer(value[0]):
        return (token_ids(value, "prompt"),)
    if len(value) > max_prompts:
        raise InvalidRequestError(
            f"prompt holds {len(value)} prompts; the limit is {max_prompts}", param="prompt"
        )
    return tuple(_prompt(item, f"prompt[{index}]") for index, item in enumerate(value))


def _prompt(value: object, param: str) -> Prompt:
    if isinstance(value, str):
        return value
    return token_ids(value, param)
