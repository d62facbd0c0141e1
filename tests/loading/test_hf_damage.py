"""Any damage to a folder's files is a `ModelError` in one line, or harmless; never a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.model_files import SmallModel, hf_name, to_bfloat16, write_folder
from surefoot.errors import ModelError
from surefoot.loading.hf.model import load_hf_folder

MODEL = SmallModel("gemma3", layers=1, window=8)
CONFIG = MODEL.config() | {
    "eos_token_id": [1, 2],
    "layer_types": ["sliding_attention"],
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "quantization": {"bits": 4, "group_size": 32},
}
TENSORS = {hf_name(name, "gemma3"): to_bfloat16(v) for name, v in MODEL.tensors().items()}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(CONFIG)), inner)
    ),
    max_leaves=4,
)
TEXT_FILES = ("tokenizer_config.json", "generation_config.json", "chat_template.json")
QUIET = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("damage") / "m", CONFIG, TENSORS)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def load(folder: Path) -> None:
    complaint = ""
    try:
        load_hf_folder(folder)
    except ModelError as error:
        complaint = error.message
    assert "\n" not in complaint
    assert str(folder) not in complaint


@QUIET
@given(key=st.sampled_from([*CONFIG, "text_config", "sliding_window_pattern"]), value=VALUES)
def test_any_value_in_config_json(scratch: Path, key: str, value: object) -> None:
    (scratch / "config.json").write_text(json.dumps(CONFIG | {"quantization": None, key: value}))
    load(scratch)


@QUIET
@given(data=st.data())
def test_any_byte_of_the_weights_header(scratch: Path, data: st.DataObject) -> None:
    (scratch / "config.json").write_text(json.dumps(CONFIG | {"quantization": None}))
    weights = scratch / "model.safetensors"
    whole = weights.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    at = data.draw(st.integers(0, header - 1))
    damaged = bytearray(whole)
    damaged[at] = data.draw(st.integers(0, 255))
    weights.write_bytes(damaged)
    try:
        load(scratch)
    finally:
        weights.write_bytes(whole)


@QUIET
@given(
    name=st.sampled_from(TEXT_FILES),
    key=st.sampled_from(
        ["eos_token_id", "eos_token", "bos_token", "add_bos_token", "chat_template"]
    ),
    value=VALUES,
)
def test_any_value_in_the_files_about_text(
    scratch: Path, name: str, key: str, value: object
) -> None:
    (scratch / "config.json").write_text(json.dumps(CONFIG | {"quantization": None}))
    for other in TEXT_FILES:
        (scratch / other).write_text("{}")
    (scratch / name).write_text(json.dumps({key: value}))
    load(scratch)
