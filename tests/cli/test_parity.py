"""Speculated against plain decoding: what is the same, what parts, and how a parting is proven."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from support.fakes import ScriptedEngine
from support.tiny_models import text_model
from surefoot.app.offline import Reply
from surefoot.app.parity import Parity, Parting, compare, measured_gap
from surefoot.cli.generate import require_parity
from surefoot.cli.program import run
from surefoot.config import SchedulerConfig
from surefoot.core.events import FinishReason
from surefoot.core.request import PlainText, Request, SamplingParams, TokenLogprobs
from surefoot.core.step import RowPlan, RowResult, StepPlan
from surefoot.core.timings import Timings
from surefoot.engine.sampling import gumbel_noise
from surefoot.errors import EngineError, ParityError
from surefoot.runtime.loop import EngineLoop
from surefoot.runtime.mailbox import Mailbox
from surefoot.scheduling.scheduler import Scheduler

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.5, seed=3)
PROMPT = (7, 8, 9)
VOCAB = 4


class LogitEngine(ScriptedEngine):
    """Log probabilities of every probe are those of `logits`."""

    logits: Sequence[float] = ()

    def _run_row(self, plan: StepPlan, row: RowPlan) -> RowResult:
        result = super()._run_row(plan, row)
        if result.logprobs is None:
            return result
        top = tuple(sorted(enumerate(self.logits), key=lambda entry: -entry[1]))
        logprobs = tuple(TokenLogprobs(0.0, top) for _ in result.tokens)
        return replace(result, logprobs=logprobs)


class ScriptedRunner:
    """What a reply goes on with behind each prefix is scripted: `replies`."""

    def __init__(
        self, replies: dict[tuple[int, ...], tuple[int, ...]], logits: Sequence[float] = ()
    ) -> None:
        self.engine = LogitEngine(1, 64, replies=replies)
        self.engine.logits = logits
        self.loop = EngineLoop(Scheduler(self.engine, SchedulerConfig(max_rows=1)))
        self.mailbox = Mailbox(self.loop)
        self.loop.start()

    def close(self) -> None:
        assert self.loop.shutdown(drain=True, timeout=30.0)


def reply(tokens: Sequence[int], params: SamplingParams = GREEDY) -> Reply:
    request = Request(1000, PROMPT, 16, params, PlainText())
    timings = Timings(len(PROMPT), 1.0, len(tokens), 1.0)
    return Reply(request, tuple(tokens), "", FinishReason.LENGTH, timings)


def parity_of(
    plain: Sequence[int],
    speculated: Sequence[int],
    logits: Sequence[float] = (),
    replies: dict[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Parity:
    with closing(ScriptedRunner(replies or {}, logits)) as runner:
        return compare(runner, reply(plain), reply(speculated), VOCAB)


def test_equal_replies_are_identical_and_run_nothing() -> None:
    with closing(ScriptedRunner({})) as runner:
        parity = compare(runner, reply([1, 2, 3]), reply([1, 2, 3]), VOCAB)
        assert runner.engine.plans == []
    assert parity == Parity(3, ())
    assert parity.identical
    assert parity.proven
    assert parity.rate == 0.0
    assert str(parity) == "parity: 3 tokens, identical"


def test_a_near_tie_is_measured_and_the_rest_compared_behind_it() -> None:
    """Part at the second token; behind the plain reply's own it says the same again."""
    rest = {(*PROMPT, 1, 2): (3, 0, 1)}
    parity = parity_of([1, 2, 3, 0, 1], [1, 3, 0, 0, 0], [0.0, 0.1, 1.0, 1.305], rest)
    (parting,) = parity.partings
    assert (parting.index, parting.plain, parting.speculated) == (1, 2, 3)
    assert parting.gap == pytest.approx(0.31)
    assert parity.num_tokens == 5
    assert parity.rate == 0.2
    assert parity.proven
    assert not parity.identical
    assert str(parity) == "parity: 1 of 5 tokens part (20.00 %): token 2 at a gap of 0.31"


def test_every_further_parting_counts() -> None:
    rest = {(*PROMPT, 2): (1, 3), (*PROMPT, 2, 1, 0): (1,)}
    parity = parity_of([2, 1, 0, 1], [3, 1, 0, 1], [1.0, 0.0, 1.25, 1.505], rest)
    assert [(p.index, p.plain, p.speculated) for p in parity.partings] == [(0, 2, 3), (2, 0, 3)]
    assert [p.gap for p in parity.partings] == [pytest.approx(0.26), pytest.approx(0.51)]


def test_a_gap_of_seven_tenths_is_no_near_tie() -> None:
    parity = parity_of([1, 2], [1, 3], [0.0, 0.0, 1.0, 1.7])
    assert parity.partings == (Parting(1, 2, 3, None),)
    assert not parity.proven
    assert str(parity).endswith(": token 2 with no near-tie (2 against 3)")


@pytest.mark.parametrize(
    ("plain", "speculated", "parting"),
    [([1, 2], [1], (1, 2, None)), ([1], [1, 2], (1, None, 2))],
)
def test_a_reply_that_ends_early_is_never_a_near_tie(
    plain: list[int], speculated: list[int], parting: tuple[int, int | None, int | None]
) -> None:
    parity = parity_of(plain, speculated)
    assert parity.partings == (Parting(*parting, gap=None),)
    assert not parity.proven


def test_the_probe_reads_the_common_prefix_and_decodes_plainly() -> None:
    with closing(ScriptedRunner({}, [0.0, 0.0, 1.0, 1.2])) as runner:
        compare(runner, reply([1, 2], SEEDED), reply([1, 3], SEEDED), VOCAB)
        (probe,) = (row for plan in runner.engine.plans for row in plan.rows)
    assert probe.feed == (*PROMPT, 1)
    assert probe.sampling.params == replace(SEEDED, logprobs=VOCAB)


def test_a_failing_probe_is_raised() -> None:
    runner = ScriptedRunner({})
    runner.engine.fault = lambda plan, row: "no"
    with closing(runner), pytest.raises(EngineError, match="no"):
        compare(runner, reply([1, 2]), reply([1, 3]), VOCAB)


def gap(logits: ArrayLike, params: SamplingParams, one: int, other: int) -> float | None:
    return measured_gap(np.array(logits, dtype=np.float32), params, 11, one, other)


@pytest.mark.parametrize(
    ("logits", "wanted"),
    [
        ([0, 0, 1, 1], 0.01),
        ([0, 0, 1, 1.005], 0.01),
        ([0, 0, 1.305, 1], 0.31),
        ([0, 0, 1, 1.685], 0.69),
        ([0, 0, 1, 1.7], None),
        ([0, 0, 3, 1], None),
        ([1.105, 0, 1, 0.9], 0.21),
        ([1.605, 0, 1, 0.9], None),
    ],
)
def test_a_greedy_gap_is_that_of_the_logits(logits: list[float], wanted: float | None) -> None:
    """In the last two a third token stands above both: each is as far from it."""
    found = gap(logits, GREEDY, 2, 3)
    assert found == (None if wanted is None else pytest.approx(wanted))


def test_a_sampled_gap_has_the_noise_on_it() -> None:
    noise = SEEDED.temperature * gumbel_noise(3, 0, 11, np.arange(4))
    logits = np.array([-50.0, -50.0, 2.0, 2.0]) - noise
    assert gap(logits, SEEDED, 2, 3) == pytest.approx(0.01)
    assert gap(logits + np.array([0, 0, 0.305, 0]), SEEDED, 2, 3) == pytest.approx(0.31)
    assert gap(logits + np.array([0, 0, 0, 0.72]), SEEDED, 2, 3) is None
    assert gap(logits, replace(SEEDED, seed=4), 2, 3) != pytest.approx(0.01)


@pytest.mark.parametrize(("third", "wanted"), [(1.103, 0.11), (1.75, None)])
def test_a_token_that_a_filter_cut_needs_what_brings_it_back(
    third: float, wanted: float | None
) -> None:
    """Top-k keeps 0 and 2. The noise is all for 1, so it is drawn as soon as it passes 2."""
    logits = np.array([2.0, 1.0, third])
    params = replace(SEEDED, top_k=2)

    def falls_so(seed: int) -> bool:
        score = logits + params.temperature * gumbel_noise(seed, 0, 11, np.arange(3))
        return bool(score[1] - 0.7 > score[0] > score[2] + 0.7)

    seed = next(seed for seed in range(10_000) if falls_so(seed))
    found = gap(logits, replace(params, seed=seed), 0, 1)
    assert found == (None if wanted is None else pytest.approx(wanted))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags for a tiny model whose replies loop."""
    monkeypatch.setenv("SUREFOOT_HOME", str(tmp_path))
    path = text_model().write(tmp_path / "tiny.gguf")
    return ["-m", str(path), "--ctx", "128", "--threads", "1"]


@pytest.mark.parametrize("mode", [[], ["--deterministic"]])
@pytest.mark.parametrize("sampling", [[], ["--temp", "0.3", "--seed", "5"]])
def test_generate_checks_its_own_reply(
    tiny: list[str], mode: list[str], sampling: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "-p", "abcabcabcabc", "-n", "60", "--prompt-lookup", "--check-parity"]
    assert run([*arguments, *mode, *sampling, *tiny]) == 0
    speed, parity, summary = capsys.readouterr().err.splitlines()[-3:]
    assert speed.startswith("prompt: ")
    assert parity.startswith("parity: ")
    assert summary.startswith("prompt lookup: rounds=")
    assert " drafted=0 " not in summary
    if mode:
        assert parity.endswith(" tokens, identical")


@pytest.mark.parametrize(
    ("partings", "deterministic", "error"),
    [
        ((), True, None),
        ((), False, None),
        ((Parting(1, 2, 3, 0.1),), False, None),
        ((Parting(1, 2, 3, 0.1),), True, "--deterministic rules out"),
        ((Parting(1, 2, 3, 0.1), Parting(4, 2, 3, None)), False, "no near-tie explains it"),
    ],
)
def test_what_is_demanded(
    partings: tuple[Parting, ...], deterministic: bool, error: str | None
) -> None:
    if error is None:
        require_parity(Parity(9, partings), deterministic)
        return
    with pytest.raises(ParityError, match=error):
        require_parity(Parity(9, partings), deterministic)
