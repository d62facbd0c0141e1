"""What a server adds to the lookup rules so that speculation never costs more than it gives.

Owns the values that replay chose and the one function that applies them. The command line's
policy never comes here.
"""

from __future__ import annotations

from dataclasses import replace

from surefoot.speculation.config import PromptLookupConfig

#: Length of the first shadow probe of a pause. Prose confirms two-token probes often, and each
#: false resume costs a switch tick and a verify round.
RESUME_CONFIRM_TOKENS = 4

#: Length of the probes after the first confirmed one.
RESUME_REPEAT_TOKENS = 7

#: Probes in a row that must come true before a paused row proposes again.
RESUME_CONFIRMATIONS = 2

#: Proposal-free asks before plain rounds are pipelined again, on a server.
SERVER_PLAIN_ROUNDS = 0


def server_lookup_config(
    base: PromptLookupConfig, min_tokens_per_round: float | None
) -> PromptLookupConfig:
    """`base` as a server with the break-even rule runs it: a row starts paused and earns its
    proposals by probes. `min_tokens_per_round` is the threshold for every width; None leaves the
    prices to whoever sets the drafters' `round_costs`. Raises `ConfigError`."""
    return replace(
        base,
        min_tokens_per_round=min_tokens_per_round,
        resume_confirm_tokens=RESUME_CONFIRM_TOKENS,
        resume_repeat_tokens=RESUME_REPEAT_TOKENS,
        resume_confirmations=RESUME_CONFIRMATIONS,
        start_paused=True,
        plain_rounds_before_pipeline=SERVER_PLAIN_ROUNDS,
    )
