"""Policies side by side over many traces, for one machine's costs.

Owns the table: totals by policy, plain decoding first, the hindsight optimum last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import StepCosts
from surefoot.speculation.goodput.chances import ServerPrior
from surefoot.speculation.overlap import OverlapMeter
from surefoot.speculation.replay.hindsight import hindsight_optimum
from surefoot.speculation.replay.simulation import replay_trace
from surefoot.speculation.replay.traces import Trace


@dataclass(frozen=True, slots=True)
class Policy:
    """A named way to run prompt lookup. `priced`: as on a server that derives its thresholds
    from the cost table, one overlap meter through all traces."""

    name: str
    config: PromptLookupConfig
    priced: bool = False


@dataclass(frozen=True, slots=True)
class PolicyTotals:
    """One row of the table, over all traces. `cost` and `plain_cost` in plain steps; `rounds` None
    where only the cost is known: the optimum is found without walking the rounds that give it."""

    name: str
    num_tokens: int
    cost: float
    plain_cost: float
    rounds: int | None = 0
    proposed: int = 0
    accepted: int = 0
    pauses: int = 0

    @property
    def cost_per_token(self) -> float:
        """Plain pipelined decoding costs 1."""
        return self.cost / self.num_tokens if self.num_tokens else 0.0

    @property
    def speed(self) -> float:
        """Tokens per second against plain decoding: 1.5 is half as fast again."""
        return self.plain_cost / self.cost if self.cost else 1.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted per proposed token; 0 without proposals."""
        return self.accepted / self.proposed if self.proposed else 0.0


def standard_policies(config: PromptLookupConfig | None = None) -> tuple[Policy, ...]:
    """GRADED, GATED and the fixed draft, else as `config` (default: every default)."""
    base = replace(config or PromptLookupConfig(), adaptive=True)
    return (
        Policy("graded", replace(base, policy=DraftPolicy.GRADED)),
        Policy("gated", replace(base, policy=DraftPolicy.GATED)),
        Policy(f"fixed {base.max_draft}", replace(base, adaptive=False)),
    )


def compare(
    traces: Sequence[Trace], costs: StepCosts, policies: Sequence[Policy]
) -> list[PolicyTotals]:
    """Plain decoding, each policy, and the hindsight optimum with the first policy's lookups.
    There is at least one trace and one policy."""
    assert traces, "nothing to compare on"
    assert policies, "nothing to compare"
    rows = [policy_totals(traces, costs, policy) for policy in policies]
    num_tokens, plain_cost = rows[0].num_tokens, rows[0].plain_cost
    best = sum(hindsight_optimum(trace, policies[0].config, costs) for trace in traces)
    return [
        PolicyTotals("plain", num_tokens, plain_cost, plain_cost),
        *rows,
        PolicyTotals("hindsight optimum", num_tokens, best, plain_cost, rounds=None),
    ]


def policy_totals(traces: Sequence[Trace], costs: StepCosts, policy: Policy) -> PolicyTotals:
    """One policy over all traces, in their order."""
    meter = OverlapMeter(policy.config.plain_rounds_before_pipeline) if policy.priced else None
    prior = ServerPrior()
    walks = [
        replay_trace(trace, policy.config, costs, overlap=meter, prior=prior) for trace in traces
    ]
    return PolicyTotals(
        name=policy.name,
        num_tokens=sum(walk.num_tokens for walk in walks),
        cost=sum(walk.cost for walk in walks),
        plain_cost=sum(walk.plain_cost for walk in walks),
        rounds=sum(walk.stats.drafted_rounds for walk in walks),
        proposed=sum(walk.stats.proposed for walk in walks),
        accepted=sum(walk.stats.accepted for walk in walks),
        pauses=sum(walk.num_pauses for walk in walks),
    )


def format_table(rows: Sequence[PolicyTotals]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| policy | cost per token | speed | rounds | proposed | accepted | acceptance | pauses |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        speed = f"{100 * (row.speed - 1):+.1f} %"
        lines.append(f"| {row.name} | {row.cost_per_token:.4f} | {speed} | {_counts(row)} |")
    return "\n".join(lines) + "\n"


def _counts(row: PolicyTotals) -> str:
    if row.rounds is None:
        return "- | - | - | - | -"
    acceptance = f"{100 * row.acceptance_rate:.1f} %"
    return f"{row.rounds} | {row.proposed} | {row.accepted} | {acceptance} | {row.pauses}"
