"""Prompt lookup with the real kernels, deterministic: it changes no token, and replay of the reply
finds the very rounds that ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.real_runs import ASK, COPY, GREEDY, SEEDED, RealRun, chat_request
from surefoot.core.request import Request, SamplingParams
from surefoot.engine.engine import Engine
from surefoot.loading.model import LoadedModel
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import load_costs
from surefoot.speculation.replay.simulation import replay_trace

COSTS = load_costs(Path(__file__).parents[1] / "data" / "costs" / "gb10-qwen3-1.7b-4bit.json")
GOVERNED = (DraftPolicy.GRADED, DraftPolicy.GATED)
CONFIGS = [
    PromptLookupConfig(policy=policy, adaptive=adaptive)
    for policy in GOVERNED
    for adaptive in (True, False)
]
NUM_TOKENS = 24


class Replies:
    """Replies of one engine, decoded plainly and alone, each once; and speculated ones, checked
    against them."""

    def __init__(self, engine: Engine, model: LoadedModel) -> None:
        self.engine = engine
        self._model = model
        self._plain: dict[tuple[str, int, SamplingParams], tuple[int, ...]] = {}

    def request(self, row_id: int, text: str, num_tokens: int, params: SamplingParams) -> Request:
        return chat_request(self._model, row_id, text, num_tokens, params)

    def plain(self, text: str, num_tokens: int, params: SamplingParams) -> tuple[int, ...]:
        key = text, num_tokens, params
        if key not in self._plain:
            run = RealRun(self.engine, [self.request(1, *key)], None)
            self._plain[key] = run.tokens(1)
        return self._plain[key]

    def check(
        self, text: str, num_tokens: int, params: SamplingParams, config: PromptLookupConfig
    ) -> int:
        """One speculated reply against the plain one and its own replay; the tokens accepted."""
        run = RealRun(self.engine, [self.request(1, text, num_tokens, params)], config)
        assert run.tokens(1) == self.plain(text, num_tokens, params)
        assert run.diaries is not None
        (drafter,) = run.diaries.drafters
        replayed = replay_trace(run.trace(1), config, COSTS)
        assert [(done.proposed, done.accepted) for done in replayed.rounds] == drafter.verified
        assert replayed.stats == drafter.stats
        assert replayed.num_pauses == drafter.num_pauses
        return drafter.stats.accepted


@pytest.fixture(scope="module")
def replies(exact: Engine, default_model: LoadedModel) -> Replies:
    return Replies(exact, default_model)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.policy}-{c.adaptive}")
@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "sampled"])
def test_a_copy_runs_the_rounds_of_its_replay(
    replies: Replies, params: SamplingParams, config: PromptLookupConfig
) -> None:
    assert replies.check(COPY, NUM_TOKENS, params, config) > 0


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.policy}-{c.adaptive}")
@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("text", [COPY, ASK], ids=["copy", "ask"])
def test_longer_replies_run_the_rounds_of_their_replay(
    replies: Replies, text: str, seed: int | None, config: PromptLookupConfig
) -> None:
    params = GREEDY if seed is None else replace(SEEDED, seed=seed)
    replies.check(text, 160, params, config)


@pytest.mark.parametrize("policy", GOVERNED)
def test_two_rows_together_say_what_each_says_alone(replies: Replies, policy: DraftPolicy) -> None:
    params = {1: GREEDY, 2: SEEDED}
    requests = [replies.request(row_id, COPY, NUM_TOKENS, each) for row_id, each in params.items()]
    run = RealRun(replies.engine, requests, PromptLookupConfig(policy=policy))
    for row_id, each in params.items():
        assert run.tokens(row_id) == replies.plain(COPY, NUM_TOKENS, each)
    assert run.diaries is not None
    assert [bool(drafter.verified) for drafter in run.diaries.drafters] == [True, True]
