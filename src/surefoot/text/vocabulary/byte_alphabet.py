"""How token texts spell bytes: the GPT-2 byte alphabet, and SentencePiece's with byte fallback.

Owns no vocabulary: one token's text in, its bytes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

TokenBytes = Callable[[str], bytes]
"""The bytes that a token's text stands for."""


def _printable_bytes() -> list[int]:
    return [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]


def _alphabet() -> dict[str, int]:
    """GPT-2's table: printable bytes spell themselves, the 68 others U+0100 to U+0143 in order
    (OpenAI's `encoder.py`, `bytes_to_unicode`)."""
    printable = _printable_bytes()
    others = [byte for byte in range(256) if byte not in set(printable)]
    spelled = {chr(byte): byte for byte in printable}
    return spelled | {chr(0x100 + n): byte for n, byte in enumerate(others)}


BYTE_OF_CHAR = _alphabet()
CHAR_OF_BYTE = {byte: char for char, byte in BYTE_OF_CHAR.items()}

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_bytes(text: str) -> bytes:
    """A token of a byte-level vocabulary. Text with a character outside the alphabet (a token
    that was added to the vocabulary as it reads) stands for its own UTF-8."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in text])
    except KeyError:
        return text.encode("utf-8")


def sentencepiece_bytes(text: str) -> bytes:
    """A token of a SentencePiece vocabulary: `<0xAB>` is that byte, U+2581 is a space."""
    fallback = _BYTE_FALLBACK.fullmatch(text)
    if fallback:
        return bytes([int(fallback.group(1), 16)])
    return text.replace("\u2581", " ").encode("utf-8")
