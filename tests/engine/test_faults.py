"""Forwards that fail or give NaN: the rows concerned say so, the next step works."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from support.engine_runs import ASKING, GREEDY, SAMPLED, Steps, row
from support.tiny_models import TinyModel
from surefoot.config import EngineConfig
from surefoot.core.request import SamplingParams
from surefoot.core.step import FromStep, RowResult
from surefoot.engine.engine import Engine
from surefoot.graph.spec import DenseWeight, Weight
from surefoot.loading.gguf.model import load_gguf

TWO_SHORT = EngineConfig(num_windows=2, capacity=64)
PROMPT = [5, 90, 17, 200, 33]


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


@pytest.mark.parametrize(
    ("ids", "start"),
    [([256], 0), ([1, 2, 2**40], 0), ([1], 600), ([1] * 600, 0)],
    ids=["token", "tokens", "beyond the window", "longer than the window"],
)
def test_a_forward_that_fails_fails_its_rows_and_no_more(
    fast: Engine, ids: list[int], start: int, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(fast)
    wanted = steps.answers(text(20), [20])
    with caplog.at_level(logging.ERROR):
        failed, beside = steps.run(row(ids, start, window=0), row(text(5), window=1))
    for each in (failed, beside):
        assert each.tokens == ()
        assert each.error is not None
        assert each.error.startswith("the forward failed (")
    assert "a forward failed" in caplog.text
    assert steps.answers(text(20), [20]) == wanted
    (orphan,) = steps.run(row(FromStep(10**6), 20))
    assert orphan.error == "the step it follows gave this row no token"


@dataclass(frozen=True)
class Spoilt:
    """The weights of a model with one value of one tensor put wrong."""

    inner: object
    name: str
    value: float

    def names(self) -> Sequence[str]:
        return self.inner.names()  # type: ignore[attr-defined,no-any-return]

    def load(self, name: str) -> Weight:
        weight: Weight = self.inner.load(name)  # type: ignore[attr-defined]
        if name != self.name:
            return weight
        assert isinstance(weight, DenseWeight)
        values = weight.values.copy()
        values.flat[3] = self.value
        return DenseWeight(values)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["output_norm.weight", "blk.0.attn_norm.weight"])
@pytest.mark.parametrize("params", [GREEDY, ASKING, SAMPLED], ids=["greedy", "asking", "sampled"])
def test_logits_that_are_not_finite_fail_the_row(
    tmp_path: Path, name: str, value: float, params: SamplingParams
) -> None:
    model = load_gguf(TinyModel().write(tmp_path / "tiny.gguf"))
    weights = Spoilt(model.weights, name, value)
    engine = Engine(model.spec, weights, "spoilt", tmp_path / "graphs", TWO_SHORT)
    asked, unasked = Steps(engine).run(
        row(PROMPT, window=0, params=params),
        row(PROMPT, window=1, params=params, sample_from=len(PROMPT)),
    )
    assert asked == RowResult(0, (), error="the logits are not finite")
    assert unasked.error is None
    engine.close()


def test_a_row_among_nan_rows_keeps_its_answer(tmp_path: Path) -> None:
    """One token's embedding is broken; rows that do not feed it are as they were."""
    model = load_gguf(TinyModel().write(tmp_path / "tiny.gguf"))
    config = TWO_SHORT
    whole = Engine(model.spec, model.weights, "whole", tmp_path / "graphs", config)
    weights = Spoilt(model.weights, "token_embd.weight", np.nan)
    broken = Engine(model.spec, weights, "broken", tmp_path / "graphs", config)
    (wanted,) = Steps(whole).run(row(PROMPT, window=1))
    bad, good = Steps(broken).run(row([0, 1, 2], window=0), row(PROMPT, window=1))
    assert bad.error == "the logits are not finite"
    assert good.tokens == wanted.tokens
    whole.close()
    broken.close()
