"""Recorded replies walked by every policy, for `goodput_report.py` and its plots."""

from __future__ import annotations

from dataclasses import dataclass, replace

from surefoot.app.generate_lookup import lookup_config
from surefoot.cli.replay import ReplayPolicy, policy_of
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.costs import StepCosts
from surefoot.speculation.goodput.chances import ServerPrior
from surefoot.speculation.overlap import OverlapMeter
from surefoot.speculation.replay.comparison import Policy
from surefoot.speculation.replay.hindsight import hindsight_optimum
from surefoot.speculation.replay.simulation import Replay, replay_trace
from surefoot.speculation.replay.traces import Trace

SHOWN = (
    ReplayPolicy.GRADED,
    ReplayPolicy.GATED,
    ReplayPolicy.SERVER_GATED,
    ReplayPolicy.GOODPUT,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Plain steps over some replies."""

    num_tokens: int
    cost: float
    plain_cost: float

    @property
    def per_token(self) -> float:
        return self.cost / self.num_tokens

    @property
    def speed(self) -> float:
        return self.plain_cost / self.cost


def walk(traces: list[Trace], policy: Policy, costs: StepCosts) -> list[Replay]:
    """All replies in their order, as one server would have served them."""
    meter = OverlapMeter(policy.config.plain_rounds_before_pipeline) if policy.priced else None
    prior = ServerPrior()
    return [
        replay_trace(trace, policy.config, costs, overlap=meter, prior=prior) for trace in traces
    ]


def hindsight(traces: list[Trace], config: PromptLookupConfig, costs: StepCosts) -> list[float]:
    return [hindsight_optimum(trace, config, costs) for trace in traces]


def total(walks: list[Replay], chosen: list[int]) -> Cost:
    picked = [walks[index] for index in chosen]
    return Cost(
        sum(one.num_tokens for one in picked),
        sum(one.cost for one in picked),
        sum(one.plain_cost for one in picked),
    )


def members(traces: list[Trace], kinds: tuple[str, ...]) -> list[int]:
    """Indices of the replies of these kinds; of all without any."""
    return [i for i, trace in enumerate(traces) if not kinds or trace.name.split("-")[0] in kinds]


@dataclass(frozen=True, slots=True)
class Measured:
    """Every policy's walks over one file on one table."""

    traces: list[Trace]
    costs: StepCosts
    walks: dict[str, list[Replay]]
    best: list[float]

    @classmethod
    def of(cls, traces: list[Trace], costs: StepCosts) -> Measured:
        base = lookup_config(None, 7, 2, 3)
        walks = {str(kind): walk(traces, policy_of(kind, base), costs) for kind in SHOWN}
        return cls(traces, costs, walks, hindsight(traces, base, costs))

    def row(self, kinds: tuple[str, ...]) -> str:
        chosen = members(self.traces, kinds)
        cells = [total(self.walks[str(kind)], chosen) for kind in SHOWN]
        best = replace(cells[0], cost=sum(self.best[index] for index in chosen))
        shown = [f"{100 * (cell.speed - 1):+.1f} %" for cell in (*cells, best)]
        share = 100 * cells[-1].speed / best.speed
        return f"| {self.costs.name} | {' | '.join(shown)} | {share:.1f} % |"
