"""The scheduler walks a recorded reply exactly as `speculation.replay` does: the same ticks, the
same rounds, the same counts, the same prices."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fakes import ScriptedEngine
from support.lookup_texts import Diaries
from support.scheduler_runs import Run, request
from surefoot.config import SchedulerConfig
from surefoot.scheduling.proposing import PromptLookup
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import StepCosts, load_costs
from surefoot.speculation.goodput.chances import SHIPPED_WEIGHTS, ServerPrior
from surefoot.speculation.overlap import OverlapMeter
from surefoot.speculation.prices import PriceBook
from surefoot.speculation.replay.simulation import Replay, TickKind, replay_trace
from surefoot.speculation.replay.traces import Trace, read_traces

DATA = Path(__file__).parent.parent / "data"
COSTS = load_costs(DATA / "costs" / "gb10-qwen3-1.7b-4bit.json")


def prose(rng: random.Random, length: int, vocab: int) -> list[int]:
    """Tokens with the repeats of natural text: a few are frequent."""
    return [int(vocab * rng.random() ** 3) for _ in range(length)]


def copying(rng: random.Random, prompt: list[int], length: int, mistakes: float) -> list[int]:
    """Copies the prompt in order, with an edit now and then."""
    reply: list[int] = []
    position = 0
    while len(reply) < length:
        if rng.random() < mistakes:
            reply += prose(rng, rng.randint(1, 6), 400)
            position = rng.randrange(len(prompt))
        reply.append(prompt[position % len(prompt)])
        position += 1
    return reply[:length]


def made_traces() -> list[Trace]:
    """Prose, copies with few and many edits, mixtures, loops; limits of every kind."""
    rng = random.Random(7)
    traces: list[Trace] = []
    for vocab in (8, 30, 400):
        prompt = prose(rng, 120, vocab)
        traces.append(Trace(tuple(prompt), tuple(prose(rng, 150, vocab)), name=f"prose{vocab}"))
    for mistakes in (0.0, 0.05, 0.3):
        prompt = prose(rng, 150, 400)
        reply = copying(rng, prompt, 180, mistakes)
        traces.append(Trace(tuple(prompt), tuple(reply), name=f"copy{mistakes}"))
    prompt = prose(rng, 100, 400)
    mixed = [*prose(rng, 60, 60), *prompt[:50], *prose(rng, 60, 60), *prompt[20:90]]
    traces.append(Trace(tuple(prompt), tuple(mixed), name="mixed"))
    traces.append(Trace((1, 2, 3), (4, 5) * 60, name="loop"))
    traces.append(Trace((1, 2, 3), (9,), name="one"))
    limits = [*prompt[:40], 777]
    traces += [
        Trace(tuple(prompt), tuple(limits), 200, frozenset({777}), name="end token"),
        Trace((*prompt, 777, *prompt), tuple(limits), 200, frozenset({777}), name="end 2"),
        Trace(tuple(prompt), tuple(prompt[:41]), 90, frozenset(), 140, name="context"),
    ]
    return traces


def recorded_traces() -> list[Trace]:
    """Traces of real runs that the repository carries."""
    paths = sorted((DATA / "traces").glob("*.jsonl"))
    return [trace for path in paths for trace in read_traces(path)]


TRACES = [*made_traces(), *recorded_traces()]
GOVERNED = (DraftPolicy.GRADED, DraftPolicy.GATED)
POLICIES = [PromptLookupConfig(policy=policy) for policy in GOVERNED]
CONFIGS = [
    *POLICIES,
    *(replace(config, adaptive=False) for config in POLICIES),
    *(replace(config, plain_rounds_before_pipeline=0) for config in POLICIES),
    *(replace(config, min_tokens_per_round=2.66, resume_confirm_tokens=4) for config in POLICIES),
    PromptLookupConfig(policy=DraftPolicy.GOODPUT),
    PromptLookupConfig(policy=DraftPolicy.GOODPUT, max_draft=32, ngram_min=1),
    replace(
        POLICIES[1],
        min_tokens_per_round=2.0,
        resume_confirm_tokens=4,
        resume_repeat_tokens=7,
        resume_confirmations=2,
        start_paused=True,
    ),
]


class Walk:
    """One trace through the scheduler."""

    def __init__(
        self, trace: Trace, config: PromptLookupConfig, pricing: StepCosts | None = None
    ) -> None:
        self.diaries = Diaries(config)
        book = PriceBook(COSTS, config.max_draft)
        self.lookup = PromptLookup(
            self.diaries,
            round_costs=None if pricing is None else self.price,
            step_prices=lambda context, sampled: book.at(context),
            synchronous_start=config.plain_rounds_before_pipeline,
        )
        self.pricing = pricing
        self.ticks: list[tuple[TickKind, int]] = []
        self.run(trace)

    def price(self, context: int, ticks_per_round: float, sampled: bool) -> tuple[float, ...]:
        assert self.pricing is not None
        assert not sampled
        return self.pricing.round_costs(context, self.diaries.config.max_draft, ticks_per_round)

    def run(self, trace: Trace) -> None:
        engine = ScriptedEngine(
            1, trace.capacity or 4096, vocab=9000, replies={trace.prompt: trace.emitted}
        )
        config = SchedulerConfig(max_rows=1, chunk_alone=4096)
        run = Run(engine, config, self.lookup)
        run.add(request(1, trace.prompt, trace.token_limit, end_ids=trace.end_ids))
        run.tick()
        while run.scheduler.num_running:
            self._tick(run)
        run.finish()
        assert run.tokens(1) == trace.emitted
        timings = run.finished(1).timings
        self.counts = (timings.draft_rounds, timings.draft_n_accepted)

    def _tick(self, run: Run) -> None:
        """Which kind of tick it was, seen from outside: what was stored, asked and fed."""
        drafter = self.diaries.drafters[-1]
        in_flight = run.scheduler.lookahead is not None
        num_steps, num_calls = len(run.engine.plans), len(drafter.diary)
        run.tick()
        if in_flight:
            switched = "d" in drafter.diary[num_calls:]
            self.ticks.append((TickKind.SWITCH if switched else TickKind.PIPELINED, 1))
            return
        width = run.engine.plans[num_steps].rows[0].num_fed
        self.ticks.append((TickKind.VERIFY if width > 1 else TickKind.SYNCHRONOUS, width))


def assert_equal_walks(walk: Walk, replay: Replay) -> None:
    assert walk.ticks == [(tick.kind, tick.width) for tick in replay.ticks]
    verified = [(done.proposed, done.accepted) for done in replay.rounds]
    if not walk.diaries.drafters:
        assert not verified
        return
    drafter = walk.diaries.drafters[-1]
    assert drafter.verified == verified
    assert drafter.stats == replay.stats
    assert drafter.num_pauses == replay.num_pauses
    assert walk.counts == (len(verified), sum(accepted for _, accepted in verified))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(CONFIGS.index(config)))
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_every_trace_and_policy_walks_alike(trace: Trace, config: PromptLookupConfig) -> None:
    assert_equal_walks(Walk(trace, config), replay_trace(trace, config, COSTS))


@pytest.mark.parametrize("policy", GOVERNED)
def test_a_server_with_live_prices_walks_alike_over_all_traces(policy: DraftPolicy) -> None:
    """One meter through all traces, as on a server: prices depend on every earlier round."""
    config = PromptLookupConfig(policy=policy, resume_confirm_tokens=4)
    meter = OverlapMeter(config.plain_rounds_before_pipeline)
    walk: Walk | None = None
    for trace in TRACES:
        if walk is None:
            walk = Walk(trace, config, COSTS)
        else:
            walk.ticks.clear()
            walk.run(trace)
        assert_equal_walks(walk, replay_trace(trace, config, COSTS, overlap=meter))
        assert walk.lookup.synchronous_ticks_per_round == meter.ticks_per_round
    assert meter.ticks_per_round != config.plain_rounds_before_pipeline


def test_goodputs_rows_learn_from_each_other_as_in_replay() -> None:
    """One prior through all traces, as on a server."""
    config = PromptLookupConfig(policy=DraftPolicy.GOODPUT)
    prior = ServerPrior()
    walk = Walk(TRACES[0], config)
    assert_equal_walks(walk, replay_trace(TRACES[0], config, COSTS, prior=prior))
    for trace in TRACES[1:]:
        walk.ticks.clear()
        walk.run(trace)
        assert_equal_walks(walk, replay_trace(trace, config, COSTS, prior=prior))
    assert walk.diaries.prior.weights == prior.weights != list(SHIPPED_WEIGHTS)


@settings(max_examples=80, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    emitted=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    spare=st.integers(0, 5),
    config=st.sampled_from(CONFIGS),
)
def test_random_traces_walk_alike(
    prompt: list[int], emitted: list[int], spare: int, config: PromptLookupConfig
) -> None:
    """`spare` tokens of `max_tokens` are left when an end token closes the reply."""
    end_ids = frozenset({4}) if spare else frozenset()
    reply = (*emitted, 4) if spare else tuple(emitted)
    trace = Trace(tuple(prompt), reply, len(reply) + spare, end_ids)
    assert_equal_walks(Walk(trace, config), replay_trace(trace, config, COSTS))
