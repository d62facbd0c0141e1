"""Engines that the tests here share: tiny models, and the default one packed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tiny_models import TinyModel, Type, open_engine
from surefoot.engine.engine import Engine
from surefoot.loading.gguf.model import load_gguf
from surefoot.loading.model import LoadedModel


@pytest.fixture(scope="session")
def default_model(default_gguf_path: Path) -> LoadedModel:
    return load_gguf(default_gguf_path)


@pytest.fixture(scope="session")
def default_graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("default-graphs")


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose linear layers have offsets and 8-bit activations, like the default one."""
    return TinyModel(linear=Type.Q4_1, tied=True).write(
        tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    )


@pytest.fixture(scope="session")
def tiny_graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny-graphs")


@pytest.fixture(scope="session")
def exact(tiny_path: Path, tiny_graphs: Path) -> Iterator[Engine]:
    """Deterministic: results do not depend on how rows and tokens are grouped."""
    engine = open_engine(tiny_path, tiny_graphs, num_windows=10, deterministic=True)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def fast(tiny_path: Path, tiny_graphs: Path) -> Iterator[Engine]:
    """The mode that is served by default: results may part at near-ties."""
    engine = open_engine(tiny_path, tiny_graphs, num_windows=10)
    yield engine
    engine.close()
