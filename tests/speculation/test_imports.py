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

for module in pkgutil.iter_modules(surefoot.speculation.__path__):
    importlib.import_module(f"surefoot.speculation.{module.name}")
    print(module.name)
"""


def test_every_module_imports_without_array_libraries() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED_IMPORT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    folder = Path(surefoot.speculation.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert set(done.stdout.split()) == modules
    assert {"config", "ngram", "governor", "shadow", "drafter", "acceptance"} <= modules
