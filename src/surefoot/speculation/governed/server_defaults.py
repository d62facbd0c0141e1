"""What a server adds to the lookup rules so that speculation never costs more than it gives.

Owns the values that replay chose and the one function that applies them. The command line's
policy never comes here.

Every number below was chosen by replay over 96 replies of the default model (8 chat questions and
8 copy tasks, greedy and with five seeds at temperature 0.8, top-p 0.95) with five cost tables: two
AVX2 cores and the four NVIDIA GB10 tables of `tests/data/costs`; 192 replies to other prompts
checked the choice, and were looked at while choosing: they are no clean held-out set. Goals:
sampled prose loses at most 1 % on each table, copy keeps 90 % of what GATED gains without the rule.
The tables stand in `docs/benchmark_results/replay-2026-11-29/`.
"""

from __future__ import annotations

from dataclasses import replace

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

#: The policy that the rule is for, whatever the backend. Under it GRADED, with its wide first
#: blocks and timed pauses, lost 0.9 to 2.6 % of sampled prose on the five tables; both kept the
#: copy gain.
RULED_POLICY = DraftPolicy.GATED

#: Length of the shadow probe that ends a pause. Two tokens come true in prose all the time: with
#: probes of two, sampled prose lost 2.1 % (Qwen3 1.7B table, the worst), of four 1.04 %, of five
#: 0.93 %; of six 0.92 %, with less of the gain on sampled copies (83 against 88 % on two cores). A
#: least pause of 8 asks lost as much prose and kept 86 to 92 % of the copy gain instead of 95 to
#: 102 %. Rows that start paused lost 0.17 %, but kept only 84 to 95 % on the other prompts,
#: whose short replies are half over when the first probe comes true.
RESUME_CONFIRM_TOKENS = 5

#: Proposal-free asks before plain rounds are pipelined again. With 2, the command line's value,
#: sampled prose lost 1.28 %, with 1 it lost 1.34 %: each such ask waits for its token.
SERVER_PLAIN_ROUNDS = 0


def server_lookup_config(
    base: PromptLookupConfig, min_tokens_per_round: float | None
) -> PromptLookupConfig:
    """`base` as a server with the break-even rule runs it. `min_tokens_per_round` is the threshold
    for every width; None leaves the prices to whoever sets the drafters' `round_costs`. Raises
    `ConfigError`."""
    return replace(
        base,
        min_tokens_per_round=min_tokens_per_round,
        resume_confirm_tokens=RESUME_CONFIRM_TOKENS,
        overlapping_probes=True,
        plain_rounds_before_pipeline=SERVER_PLAIN_ROUNDS,
    )
