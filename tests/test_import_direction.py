"""Imports follow the layers: an arrow that points back, or an array library where integers are
enough, fails here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import surefoot

PACKAGE = Path(surefoot.__file__).parent

ALLOWED: dict[str, set[str]] = {
    "errors": {"core"},
    "core": {"errors"},
    "config": {"errors", "core"},
    "speculation": {"errors", "core", "config"},
    "cache": {"errors", "core", "config"},
    "scheduling": {"errors", "core", "config", "speculation", "cache"},
    "graph": {"errors", "core", "config"},
    "loading": {"errors", "core", "config", "graph"},
    "output": {"errors", "core", "config"},
    "text": {"errors", "core", "config", "output"},
    "engine": {"errors", "core", "config", "graph", "cache"},
    "runtime": {"errors", "core", "config", "scheduling", "speculation", "cache"},
}
"""Area -> the other areas it may import. Areas not named (the server, the command line, whatever
wires objects together) stand at the end of the arrows and may import all of these."""

PLAIN = {"errors", "core", "config", "speculation", "cache", "scheduling", "runtime"}
"""Areas without arrays: they import neither numpy nor onnx nor onnxruntime."""

ONNX_AREAS = {"engine", "graph"}
"""The only areas that import onnx or onnxruntime."""


def area_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """Absolute names of all modules a file imports, wherever in it, relative ones resolved."""
    package = ["surefoot", *path.relative_to(PACKAGE).parts[:-1]]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            names.add(module)
            if module == "surefoot":
                names |= {f"surefoot.{alias.name}" for alias in node.names}
    return names


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_area_may(path: Path) -> None:
    area = area_of(path)
    modules = imported_modules(path)
    ours = {name.split(".")[1] for name in modules if name.startswith("surefoot.")}
    if area in ALLOWED:
        assert ours - {area} <= ALLOWED[area]
    outside = {name.split(".")[0] for name in modules}
    if area in PLAIN:
        assert not outside & {"numpy", "onnx", "onnxruntime"}
    if area not in ONNX_AREAS:
        assert not outside & {"onnx", "onnxruntime"}
    if area == "loading":
        graph = {name for name in modules if name.startswith("surefoot.graph")}
        assert graph <= {"surefoot.graph", "surefoot.graph.spec"}


def test_the_scheduler_knows_the_engine_by_its_protocol_alone() -> None:
    scheduler = imported_modules(PACKAGE / "scheduling" / "scheduler.py")
    assert "surefoot.core.step" in scheduler
    assert not [name for name in scheduler if name.startswith("surefoot.engine")]


def test_relative_and_plain_imports_are_both_seen(tmp_path: Path) -> None:
    found = imported_modules(PACKAGE / "scheduling" / "proposing.py")
    assert {"logging", "surefoot.scheduling", "surefoot.scheduling.row"} <= found
