"""Keeping what the caller wrote apart from what the template wrote.

A template glues markers and message texts into one string; the text of a marker inside a message
must stay plain text. So messages go through the template in disguise: characters that occur in
special tokens are replaced, one for one, by private-use characters that occur nowhere else. What
the rendering then shows undisguised, the template wrote. Trimming, cutting, joining and copying
keep the disguise, for it is in the characters themselves.

Knows nothing of Jinja or tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from surefoot.errors import InvalidRequestError

ROLES = frozenset({"system", "user", "assistant", "tool", "developer", "function", "ipython"})
"""Roles are the template's own words: some write their markers as `<|` + role + `|>`. Any other
role is the caller's text."""

Messages = Sequence[Mapping[str, object]]

_PRIVATE_USE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE), range(0xE000, 0xF900))


class Disguise:
    """Replaces characters of `special_texts` by ones that are not in `seen`.

    Raises `InvalidRequestError` if `seen` leaves too few of the 137,468
    private-use characters.
    """

    def __init__(self, special_texts: Sequence[str], seen: Iterable[str]) -> None:
        hidden = sorted({char for text in special_texts for char in text if not char.isspace()})
        used = set().union(*seen)
        free = (chr(code) for run in _PRIVATE_USE for code in run if chr(code) not in used)
        masks = [mask for _, mask in zip(hidden, free, strict=False)]
        if len(masks) < len(hidden):
            raise InvalidRequestError(
                "the messages hold nearly every private-use character", param="messages"
            )
        self._mask = str.maketrans(dict(zip(hidden, masks, strict=True)))
        self._unmask = str.maketrans(dict(zip(masks, hidden, strict=True)))
        self._whole = re.compile(
            "|".join(map(re.escape, sorted(special_texts, key=len, reverse=True))) or r"(?!)"
        )
        self._heads = {text[:n] for text in special_texts for n in range(1, len(text))}
        self._tails = {text[n:] for text in special_texts for n in range(1, len(text))}
        self._sizes = range(max(map(len, special_texts), default=0), 0, -1)

    def hide(self, text: str) -> str:
        """Every character that could be part of a special token."""
        return text.translate(self._mask)

    def hide_whole(self, text: str) -> str:
        """Only what spells a special token from beginning to end."""
        return self._whole.sub(lambda match: self.hide(match.group()), text)

    def hide_special(self, text: str) -> str:
        """What spells a special token, or a part of one at either end of the text, where the
        template's own text may complete it. The rest reads as it is."""
        text = self.hide_whole(text)
        inner = text.strip()
        start = text.find(inner)
        head = _longest_in(self._tails, (inner[:size] for size in self._sizes))
        tail = _longest_in(self._heads, (inner[-size:] for size in self._sizes))
        end = start + len(inner)
        text = text[: end - tail] + self.hide(text[end - tail : end]) + text[end:]
        return text[:start] + self.hide(text[start : start + head]) + text[start + head :]

    def reveal(self, text: str) -> str:
        return text.translate(self._unmask)


def _longest_in(parts: AbstractSet[str], candidates: Iterable[str]) -> int:
    return next((len(part) for part in candidates if part in parts), 0)


def disguised(messages: Messages, disguise: Disguise, hide: Callable[[str], str]) -> Messages:
    """The messages with `hide` on every string value but a known role. Keys name things to the
    template, so in them only whole spellings of special tokens are hidden."""

    def walk(value: object) -> object:
        if isinstance(value, str):
            return hide(value)
        if isinstance(value, Mapping):
            return {disguise.hide_whole(str(key)): walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [walk(item) for item in value]
        return value

    return [
        {
            key: value if key == "role" and value in ROLES else walk(value)
            for key, value in message.items()
        }
        for message in messages
    ]


def strings_in(value: object) -> Iterable[str]:
    """Every string of nested messages, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from strings_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings_in(item)
