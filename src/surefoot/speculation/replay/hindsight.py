"""The cheapest schedule that a trace allowed, known only afterwards.

Owns the dynamic program over positions and pipeline state: the bound that policies are measured
against. It must not know policies.
"""

from __future__ import annotations

from surefoot.speculation.acceptance import accepted_prefix, cut_after_end, proposal_room
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.costs import StepCosts
from surefoot.speculation.lookup import NgramIndex
from surefoot.speculation.replay.traces import Trace


def hindsight_optimum(trace: Trace, config: PromptLookupConfig, costs: StepCosts) -> float:
    """The least cost, in plain steps, of any schedule of synchronous ticks, pipelined ticks and
    verify rounds of any prefix of the lookups of `config` (its lengths and `max_draft` alone).

    It starts synchronous, may prime after any synchronous plain tick and may leave the pipeline
    at any tick; the accounting is `replay`'s, so no policy with these lookups costs less.
    """
    lookups = _lookups(trace, config)
    total, num_prompt = len(trace.emitted), len(trace.prompt)
    # Cost to go with nothing in flight, and with a step in flight, by tokens emitted.
    synchronous = [0.0] * (total + 1)
    pipelined = [0.0] * (total + 1)
    for emitted in range(total - 1, 0, -1):
        bucket = costs.bucket_for(num_prompt + emitted)
        onward = min(synchronous[emitted + 1], pipelined[emitted + 1])
        pipelined[emitted] = 1.0 + onward
        best = bucket.relative_synchronous + onward
        draft = lookups[emitted]
        landed = accepted_prefix(draft, trace.emitted[emitted:])
        for width in range(2, len(draft) + 2):
            after = min(emitted + min(width - 1, landed) + 1, total)
            best = min(best, bucket.relative(width) + synchronous[after])
        synchronous[emitted] = best
    return synchronous[1] if total > 1 else 0.0


def _lookups(trace: Trace, config: PromptLookupConfig) -> list[tuple[int, ...]]:
    """What a synchronous ask would find by tokens emitted, cut to its room and end tokens."""
    index = NgramIndex(config)
    context = list(trace.prompt)
    lookups: list[tuple[int, ...]] = [()]
    for emitted, token in enumerate(trace.emitted[:-1], start=1):
        context.append(token)
        index.extend(context)
        room = proposal_room(
            tokens_left=trace.token_limit - emitted,
            start=len(context) - 1,
            capacity=trace.capacity,
        )
        found = index.propose(context, min(config.max_draft, room))
        lookups.append(cut_after_end(found, trace.end_ids))
    return lookups
