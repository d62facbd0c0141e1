"""A forward that cannot get its memory: its row says so, and the next forward runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.engine.engine import NO_MEMORY

PROGRAM = """
import resource, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from support.engine_runs import GREEDY, Steps, row
from support.tiny_models import TinyModel, TinyShape, open_engine

folder = Path(sys.argv[1])
model = TinyModel(tied=True, shape=TinyShape(context=4096))
engine = open_engine(model.write(folder / "tiny.gguf"), folder / "graphs", capacity=4096)
steps = Steps(engine)
(wanted,) = steps.run(row([1, 2, 3], params=GREEDY))
pages = int(Path("/proc/self/statm").read_text().split()[0])
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 8 * 2**20, hard))
(failed,) = steps.run(row([1] * 4000, params=GREEDY, sample_from=3999))
(again,) = steps.run(row([1, 2, 3], params=GREEDY))
print(failed.tokens, failed.out_of_memory, again == wanted)
"""


@pytest.mark.parametrize(
    ("message", "means_it"),
    [
        ("bfc_arena.cc:360 Failed to allocate memory for requested buffer of size 262144000", True),
        ("std::bad_alloc", True),
        ("bad allocation", True),
        ("Non-zero status code returned while running MatMul node", False),
    ],
)
def test_what_onnx_runtime_says(message: str, means_it: bool) -> None:
    assert (NO_MEMORY.search(message) is not None) is means_it


def test_a_prompt_too_large_for_the_memory_left_fails_alone(tmp_path: Path) -> None:
    tests = Path(__file__).resolve().parents[1]
    program = PROGRAM.format(paths=[str(tests), str(tests.parent / "src")])
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.stdout == "() True True\n", run.stderr
