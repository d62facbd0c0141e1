"""Markdown tables, aligned so that they can be read raw too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The first column is left-aligned, the others right-aligned; bars in cells are escaped.

    Raises `ValueError` for a row of another length.
    """
    cells = [[escaped(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))] if header else []
    rule = ["-" * max(widths[0], 3), *("-" * (max(width, 3) - 1) + ":" for width in widths[1:])]
    lines = [aligned(row, widths) for row in [cells[0], rule, *cells[1:]]]
    return "\n".join(lines) + "\n"


def aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(max(width, 3)) if index == 0 else cell.rjust(max(width, 3))
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "| " + " | ".join([first, *rest]) + " |"


def escaped(cell: object) -> str:
    text = f"{cell:.1f}" if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")


def bullet_list(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)
