"""The tables of docs/model-formats.md are what their command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantization_errors import lines, said

DOC = Path(__file__).parents[2] / "docs" / "model-formats.md"


def test_the_docs_hold_the_tables_as_they_are_measured() -> None:
    text = DOC.read_text(encoding="utf-8")
    types, rounded = "\n".join(lines()).split("\n\n")
    assert types.count("\n") == 16
    assert rounded.count("\n") == 3
    for table in (types, rounded):
        assert f"\n\n{table}\n\n" in text


@pytest.mark.parametrize(
    ("error", "words"), [(0.0, "0"), (1.9e-7, "below 2e-07"), (2.1e-7, "2e-07"), (0.012, "1e-02")]
)
def test_rounding_of_float32_is_told_from_loss(error: float, words: str) -> None:
    assert said(error) == words
