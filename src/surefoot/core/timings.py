"""What a finished row took, under llama-server's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds and counts of one row. `prompt_n` tokens of the prompt were computed, `cache_n`
    were known already; both together are the prompt. `draft_*` count what was kept after stops
    and limits, and are zero when no verify round ran."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    draft_rounds: int = 0

    def as_dict(self) -> dict[str, float | int | str]:
        """The reply's `timings` object; the draft fields only when at least one round ran."""
        fields: dict[str, float | int | str] = {
            "prompt_n": self.prompt_n,
            "prompt_ms": self.prompt_ms,
            "prompt_per_second": _rate(self.prompt_n, self.prompt_ms),
            "predicted_n": self.predicted_n,
            "predicted_ms": self.predicted_ms,
            "predicted_per_second": _rate(self.predicted_n, self.predicted_ms),
            "cache_n": self.cache_n,
        }
        if self.draft_rounds:
            fields |= {
                "draft_n": self.draft_n,
                "draft_n_accepted": self.draft_n_accepted,
                "draft_rounds": self.draft_rounds,
                "draft_kind": "prompt-lookup",
            }
        return fields


def _rate(count: int, milliseconds: float) -> float:
    return 1000.0 * count / milliseconds if milliseconds > 0 else 0.0
