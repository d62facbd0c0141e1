"""Engines over the default model, with room for two short rows, packed once for this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.real_runs import open_real_engine
from surefoot.engine.engine import Engine
from surefoot.loading.gguf.model import load_gguf
from surefoot.loading.model import LoadedModel


@pytest.fixture(scope="session")
def default_model(default_gguf_path: Path) -> LoadedModel:
    return load_gguf(default_gguf_path)


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="session")
def exact(default_model: LoadedModel, graphs: Path) -> Iterator[Engine]:
    """Deterministic: results do not depend on how rows and tokens are grouped."""
    engine = open_real_engine(default_model, graphs, deterministic=True)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def fast(default_model: LoadedModel, graphs: Path) -> Iterator[Engine]:
    """The level that is served by default: texts may part at near-ties."""
    engine = open_real_engine(default_model, graphs, deterministic=False)
    yield engine
    engine.close()
