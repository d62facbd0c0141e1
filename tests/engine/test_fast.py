"""The default mode: a row alone rounds differently from a row among others, so replies may part,
but only where two tokens are nearly level, and seldom."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from support.engine_runs import ASKING, SAMPLED, Answer, Steps, row
from support.tiny_models import TinyModel, open_engine
from surefoot.core.request import TokenLogprobs
from surefoot.engine.engine import Engine
from surefoot.engine.sampling import gumbel_noise

LENGTH = 250
MAX_DISTANCE = 1.5
"""How far 8-bit activations may move the distance of two logits of these tiny models: 64 inputs
average less of the rounding away than a real model's 576 (whose bound is 0.7)."""
MAX_RATE = 0.05


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def distance(entry: TokenLogprobs, first: int, second: int) -> float:
    """How much likelier `first` is than `second`, in natural units."""
    found = dict(entry.top)
    return found[first] - found[second]


def partings(wanted: list[Answer], found: list[Answer]) -> list[int]:
    return [
        index
        for index, (one, other) in enumerate(zip(wanted, found, strict=True))
        if one[0] != other[0]
    ]


@pytest.mark.parametrize("widths", [[1], [2], [1, 4, 8]], ids=["alone", "pairs", "mixed"])
@pytest.mark.parametrize("params", [ASKING, SAMPLED], ids=["greedy", "sampled"])
def test_partings_are_near_ties(fast: Engine, widths: list[int], params: object) -> None:
    steps, ids = Steps(fast), text(LENGTH)
    wanted = steps.answers(ids, [LENGTH], params=params)  # type: ignore[arg-type]
    found = steps.answers(ids, widths, params=params)  # type: ignore[arg-type]
    parted = partings(wanted, found)
    for index in parted:
        (one, entry), (other, _) = wanted[index], found[index]
        assert entry is not None
        gap = distance(entry, one, other)
        if params is SAMPLED:
            here, there = gumbel_noise(
                SAMPLED.seed, SAMPLED.choice, index + 1, np.array([one, other])
            )
            gap += SAMPLED.temperature * (here - there)
        assert 0 <= gap < MAX_DISTANCE
    assert len(parted) <= MAX_RATE * LENGTH


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Float weights: nothing amplifies the rounding."""
    folder = tmp_path_factory.mktemp("floats")
    path = TinyModel(linear=Type.F32).write(folder / "tiny.gguf")
    engine = open_engine(path, folder / "graphs", num_windows=3)
    yield engine
    engine.close()


@pytest.mark.parametrize("params", [ASKING, SAMPLED], ids=["greedy", "sampled"])
def test_float_weights_part_nowhere(floats: Engine, params: object) -> None:
    steps, ids = Steps(floats), text(LENGTH)
    wanted = steps.answers(ids, [LENGTH], params=params)  # type: ignore[arg-type]
    found = steps.answers(
        ids,
        [1, 1, 5],
        window=2,
        params=params,  # type: ignore[arg-type]
        companions=lambda step: [row(text(1 + step % 3, seed=step), window=0)],
    )
    assert partings(wanted, found) == []
    for (_, one), (_, other) in zip(wanted, found, strict=True):
        assert one is not None
        assert other is not None
        assert other.logprob == pytest.approx(one.logprob, abs=1e-4)
