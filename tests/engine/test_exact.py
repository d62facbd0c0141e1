"""The deterministic mode with the real kernels: however rows and tokens are grouped, the same
tokens and the same log probabilities, bit for bit; greedy and sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from support.engine_runs import ASKING, GREEDY, SAMPLED, Answer, Companions, Steps, row
from support.tiny_models import LINEAR_TYPES, TinyModel, TinyShape, open_engine
from surefoot.config import EngineConfig
from surefoot.core.request import SamplingParams
from surefoot.core.step import RowPlan
from surefoot.engine.engine import Engine
from surefoot.loading.model import LoadedModel

LENGTH = 270
WINDOW = 4


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def among(*widths: int) -> Companions:
    """Other rows of these widths, at other windows and places, another text in every step."""

    def rows(step: int) -> list[RowPlan]:
        return [
            row(text(width, seed=step), start=step % 7, window=window, params=GREEDY)
            for window, width in enumerate(widths)
        ]

    return rows


GROUPINGS: dict[str, tuple[Sequence[int], Companions]] = {
    "one by one": ([1], among()),
    "verify rounds": ([1, 2, 3, 8, 5], among()),
    "chunks of 32": ([32], among()),
    "a tile of attention and one": ([33], among()),
    "a tile of the products": ([128], among()),
    "and one": ([129], among()),
    "two tiles and one": ([257], among()),
    "uneven": ([64, 65], among()),
    "two rows": ([1], among(1)),
    "three rows, one verifies": ([1, 4], among(1, 1)),
    "beside a prompt's chunk": ([1, 2, 127], among(127, 1)),
    "together a tile and one": ([1, 5], among(126, 1, 1)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exact")


@pytest.fixture(scope="module", params=LINEAR_TYPES, ids=lambda kind: kind.name)
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    model = TinyModel(linear=request.param, tied=request.param in (Type.Q4_1, Type.Q8_0))
    path = model.write(folder / f"{request.param.name}.gguf")
    engine = open_engine(path, folder / "graphs", num_windows=5, deterministic=True)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def whole(engine: Engine) -> dict[SamplingParams, list[Answer]]:
    """Everything fed in one step, alone."""
    steps = Steps(engine)
    return {
        params: steps.answers(text(LENGTH), [LENGTH], params=params) for params in (ASKING, SAMPLED)
    }


@pytest.mark.parametrize("name", GROUPINGS)
def test_groupings_change_no_bit(
    engine: Engine, whole: dict[SamplingParams, list[Answer]], name: str
) -> None:
    widths, companions = GROUPINGS[name]
    params = SAMPLED if len(name) % 2 else ASKING
    found = Steps(engine).answers(
        text(LENGTH), widths, window=WINDOW, params=params, companions=companions
    )
    assert found == whole[params]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 140), min_size=1, max_size=6),
    st.lists(st.integers(1, 140), max_size=3),
    st.sampled_from([ASKING, SAMPLED]),
)
def test_any_grouping_changes_no_bit(
    exact: Engine, widths: list[int], others: list[int], params: SamplingParams
) -> None:
    steps, ids = Steps(exact), text(150, seed=3)
    wanted = steps.answers(ids, [150], params=params)
    found = steps.answers(ids, widths, window=9, params=params, companions=among(*others))
    assert found == wanted


@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_other_head_sizes_have_other_tiles(folder: Path, head_dim: int) -> None:
    shape = TinyShape(layers=1, heads=2, kv_heads=1, head_dim=head_dim)
    path = TinyModel(linear=Type.Q4_0, shape=shape).write(folder / f"heads-{head_dim}.gguf")
    engine = open_engine(path, folder / "graphs", deterministic=True)
    steps, ids = Steps(engine), text(LENGTH)
    wanted = steps.answers(ids, [2])
    for width in (1, 33, 65, 129, 257, LENGTH):
        assert steps.answers(ids, [width]) == wanted
    engine.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(tiny_path: Path, tiny_graphs: Path, threads: int) -> None:
    """Of what one engine answers; another number of threads may be another engine."""
    engine = open_engine(tiny_path, tiny_graphs, deterministic=True, num_threads=threads)
    steps, ids = Steps(engine), text(LENGTH)
    wanted = steps.answers(ids, [LENGTH])
    for width in (1, 5, 129):
        assert steps.answers(ids, [width]) == wanted
    engine.close()


def test_the_last_positions_of_a_window_have_room_for_the_dummies(folder: Path) -> None:
    shape = TinyShape(context=64)
    path = TinyModel(linear=Type.Q4_1, shape=shape).write(folder / "short.gguf")
    engine = open_engine(path, folder / "graphs", capacity=64, num_windows=2, deterministic=True)
    steps, ids = Steps(engine), text(64)
    wanted = steps.answers(ids, [64])
    for widths in ([1], [31, 33], [63, 1]):
        assert steps.answers(ids, widths, window=1) == wanted
    engine.close()


def test_penalties_see_the_drafts_before_a_position(exact: Engine) -> None:
    """A verify round answers as the single steps would: its state grows draft by draft."""
    penalties = {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.7,
        "logprobs": 5,
    }
    steps, prompt = Steps(exact), text(20, seed=5)
    for params in (
        SamplingParams(temperature=0.0, **penalties),
        SamplingParams(temperature=0.9, seed=3, **penalties),
    ):
        output = [7]
        singles: list[Answer] = []
        steps.one(row(prompt, sample_from=len(prompt)))
        for _ in range(8):
            start = len(prompt) + len(output) - 1
            plan = row(output[-1:], start, params=params, prompt_ids=prompt, output_ids=output)
            result = steps.one(plan)
            assert result.logprobs is not None
            singles.append((result.tokens[0], result.logprobs[0]))
            output.append(result.tokens[0])
        feed = output[:-1]
        plan = row(feed, len(prompt), params=params, prompt_ids=prompt, output_ids=output[:1])
        result = steps.one(plan)
        assert result.logprobs is not None
        assert list(zip(result.tokens, result.logprobs, strict=True)) == singles
        plain = steps.one(row(feed, len(prompt), params=ASKING)).tokens
        assert plain != result.tokens, "the penalties must have changed something"


def test_the_default_model(default_model: LoadedModel, default_graphs: Path) -> None:
    engine = Engine(
        default_model.spec,
        default_model.weights,
        default_model.fingerprint,
        default_graphs,
        EngineConfig(num_windows=2, capacity=256, deterministic=True),
    )
    steps = Steps(engine)
    ids = np.random.default_rng(1).integers(20, 40_000, 132).tolist()
    wanted = steps.answers(ids, [132], params=SAMPLED)
    for widths, companions in (
        ([129], lambda step: ()),
        ([100, 1, 1, 8, 2], lambda step: ()),
        ([127, 1], lambda step: [row([17, 18][: step + 1], 3, window=0)]),
    ):
        found = steps.answers(ids, widths, window=1, params=SAMPLED, companions=companions)
        assert found == wanted
    engine.close()
