"""The default model's tokenizer, and the reference data made with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from surefoot.loading.gguf.model import load_gguf
from surefoot.text.tokenizer import Tokenizer

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def default_metadata(default_gguf_path: Path) -> Mapping[str, object]:
    return load_gguf(default_gguf_path).metadata


@pytest.fixture(scope="session")
def default_tokenizer(default_metadata: Mapping[str, object]) -> Tokenizer:
    return Tokenizer.from_gguf_metadata(default_metadata)


@pytest.fixture(scope="session")
def golden_tokens() -> dict[str, Any]:
    return json.loads((DATA / "tokens.json").read_text())


@pytest.fixture(scope="session")
def golden_chat() -> dict[str, Any]:
    return json.loads((DATA / "chat.json").read_text())
