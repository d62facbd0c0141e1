"""Fixtures that more than one area of the tests uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from surefoot.loading.store.models import ModelStore
from surefoot.loading.store.resolve import resolve_model


@pytest.fixture(scope="session")
def default_gguf_path() -> Path:
    """The default model's file: `SUREFOOT_TEST_GGUF`, or the store, fetched if need be."""
    given = os.environ.get("SUREFOOT_TEST_GGUF")
    if given:
        return Path(given)
    home = os.environ.get("SUREFOOT_HOME", "~/.cache/surefoot")
    return resolve_model("default", ModelStore(Path(home).expanduser()))
