"""Running the widths of verify rounds once, before anybody waits for one.

The first forward of a shape may pay for what the kernels set up at first use.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.core.request import SamplingParams
from surefoot.core.step import RowPlan, RowSampling, StepEngine, StepPlan

_TOKEN = 17

WIDEST = 8
"""Wider rounds come later in a row, and their first one took no longer than their second (widths of
9 to 16 twice each: 0.7 s both times, which a start would pay)."""


def warm_up_widths(engine: StepEngine, max_draft: int, samplings: Sequence[SamplingParams]) -> None:
    """Feed 1 to `max_draft + 1` tokens, at most `WIDEST`, each once for each way to draw, behind
    one token of context. Widths that no window holds are left out. The engine must be idle; window
    0 is free again afterwards."""
    widest = min(max_draft + 1, WIDEST, engine.capacity - 1)
    step_id = 0
    for params in samplings:
        for start, width in [(0, 1), *((1, width) for width in range(1, widest + 1))]:
            row = RowPlan(0, 0, (_TOKEN,) * width, start, 0, RowSampling(params))
            engine.submit(StepPlan(step_id, (row,))).result()
            step_id += 1
    engine.release_window(0)
