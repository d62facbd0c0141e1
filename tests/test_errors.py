"""Messages of our errors: one line, whatever they quote."""

from __future__ import annotations

import pytest

from surefoot.errors import MAX_MESSAGE, ModelError, one_line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("tensor blk.0 is missing", "tensor blk.0 is missing"),
        ("tensor a\nb is missing", "tensor a\\nb is missing"),
        ("file \x1b[31mred", "file \\x1b[31mred"),
        ("Modell für Müller 模型", "Modell für Müller 模型"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_a_message_is_one_line(message: str, line: str) -> None:
    assert one_line(message) == line
    error = ModelError(message)
    assert (error.message, str(error)) == (line, line)


def test_what_is_quoted_is_cut() -> None:
    assert one_line("x" * MAX_MESSAGE) == "x" * MAX_MESSAGE
    assert one_line("x" * 5000) == "x" * MAX_MESSAGE + "..."
