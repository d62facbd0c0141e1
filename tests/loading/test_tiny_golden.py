"""The golden tiny models (logits by transformers in float32), from safetensors and from GGUF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from graph_runs import GraphRun
from surefoot.loading.model import LoadedModel
from surefoot.loading.open import load_model

TINY = Path(__file__).parents[1] / "data" / "tiny"
FAMILIES = ("llama", "qwen2", "qwen3")


def golden(family: str) -> tuple[list[int], NDArray[np.float32]]:
    with np.load(TINY / family / "golden.npz") as file:
        return [int(token) for token in file["input_ids"][0]], file["logits"][0]


def logits_of(model: LoadedModel, ids: list[int], **options: int) -> NDArray[np.float32]:
    return GraphRun(model.spec, model.weights, **options).feed(ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_floats_from_safetensors_give_the_golden_logits(family: str) -> None:
    ids, wanted = golden(family)
    found = logits_of(load_model(TINY / family, "none"), ids)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_fed_one_by_one_give_the_golden_logits(family: str) -> None:
    ids, wanted = golden(family)
    model = load_model(TINY / family, "none")
    run = GraphRun(model.spec, model.weights)
    run.feed(ids[:7])
    for position in range(7, len(ids)):
        found = run.feed(ids[position : position + 1], start=position)
        np.testing.assert_allclose(found[0], wanted[position], atol=1e-4)
