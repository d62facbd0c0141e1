"""Names of the graph's inputs and outputs: the one thing the builder and the session share.

Shapes: `T` tokens fed in the step, all rows one behind the other; `R` rows, fixed when the graph
is built; `A` positions whose next token is asked for.
"""

from __future__ import annotations

INPUT_IDS = "input_ids"
"""int64 `[T]`: the fed tokens."""

ROW_LENGTHS = "row_lengths"
"""int64 `[R]`: how many of them belong to each row (at least one)."""

TOTAL_LENGTHS = "total_lengths"
"""int32 `[R]`: valid KV positions of each row after the step."""

ASKED = "asked"
"""int64 `[A]`: indices into `T` after which a token is asked for."""

NEXT_TOKENS = "next_tokens"
"""int64 `[A]`: the highest logit's token."""

LOGITS = "logits"
"""float32 `[A, vocab]`."""

ACTIVITY = "activity"
"""float32 `[A]`: the sum of the last hidden state's magnitudes; not finite when the forward went
wrong, so NaN logits are seen without reading them."""


def past_key(layer: int, row: int) -> str:
    return f"past_key_{layer}_{row}"


def past_value(layer: int, row: int) -> str:
    return f"past_value_{layer}_{row}"


def present_key(layer: int, row: int) -> str:
    return f"present_key_{layer}_{row}"


def present_value(layer: int, row: int) -> str:
    return f"present_value_{layer}_{row}"
