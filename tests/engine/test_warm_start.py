"""A start that finds its graphs made loads nothing that only making them needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gguf import GGMLQuantizationType as Type

from support.tiny_models import TinyModel

RUN = """
import sys
from pathlib import Path
from surefoot.config import EngineConfig
from surefoot.core.request import SamplingParams
from surefoot.core.step import RowPlan, RowSampling, StepPlan
from surefoot.engine.engine import Engine
from surefoot.loading.gguf.model import load_gguf

model = load_gguf(Path(sys.argv[1]))
config = EngineConfig(num_windows=2, capacity=64)
engine = Engine(model.spec, model.weights, model.fingerprint, Path(sys.argv[2]), config)
sampling = RowSampling(SamplingParams(temperature=0.0))
rows = tuple(RowPlan(row, row, (1, 2, 3), 0, 0, sampling) for row in range(2))
tokens = [result.tokens for result in engine.submit(StepPlan(0, rows)).result().rows]
engine.close()
print("onnx" in sys.modules, tokens)
"""


def test_a_warm_start_imports_no_onnx_and_says_the_same(tmp_path: Path) -> None:
    model = TinyModel(linear=Type.Q4_1).write(tmp_path / "tiny.gguf")
    command = [sys.executable, "-c", RUN, str(model), str(tmp_path / "graphs")]
    cold, warm = (
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        for _ in range(2)
    )
    assert cold.startswith("True [")
    assert warm == cold.replace("True", "False")
