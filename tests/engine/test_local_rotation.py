"""A model whose every layer sees a window only rotates by one pair of tables: the real engine opens
it, and says what the graph by itself does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.engine_runs import GREEDY, Steps, row
from support.model_files import SmallModel, write_gguf
from support.reference_decoder import reference_logits
from surefoot.config import EngineConfig
from surefoot.engine.engine import Engine
from surefoot.loading.open import load_model

IDS = [int(token) for token in np.random.default_rng(4).integers(0, 96, 20)]


@pytest.mark.parametrize("layers", [2, 6], ids=["windows alone", "one layer sees all"])
def test_gemma_with_and_without_a_layer_that_sees_all(layers: int, tmp_path: Path) -> None:
    model = SmallModel("gemma3", layers=layers, window=8)
    tensors = model.tensors()
    loaded = load_model(write_gguf(tmp_path / "m.gguf", "gemma3", model.metadata(), tensors))
    config = EngineConfig(num_windows=1, capacity=64, accuracy_level=1)
    engine = Engine(loaded.spec, loaded.weights, loaded.fingerprint, tmp_path / "graphs", config)
    (result,) = Steps(engine).run(row(IDS, sample_from=0, params=GREEDY))
    engine.close()
    wanted = reference_logits(model.family(), tensors, IDS)
    assert result.tokens == tuple(int(each) for each in wanted.argmax(axis=-1))
