"""The package is pure: it imports where numpy, onnx and onnxruntime do not exist."""

import subprocess
import sys
from pathlib import Path

import surefoot.speculation

BLOCKED_IMPORT = """
import importlib, pkgutil, sys

for name in ("numpy", "onnx", "onnxruntime"):
    sys.modules[name] = None  # importing it raises ImportError

import surefoot.speculation

for module in pkgutil.walk_packages(surefoot.speculation.__path__, "surefoot.speculation."):
    importlib.import_module(module.name)
    print(module.name.rpartition(".")[2])
"""


def test_every_module_imports_without_array_libraries() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED_IMPORT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    folder = Path(surefoot.speculation.__file__).parent
    modules = {path.stem for path in folder.rglob("*.py")} - {"__init__"}
    assert modules <= set(done.stdout.split())
