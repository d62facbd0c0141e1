"""Every family, from GGUF and from Hugging Face folders, against an independent numpy forward."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from quantized_bytes import random_bytes
from support.graph_runs import GraphRun
from support.model_files import SmallModel, hf_name, to_bfloat16, write_folder, write_gguf
from support.reference_decoder import reference_logits
from surefoot.errors import ModelError
from surefoot.loading.fidelity import dequantize, relative_error
from surefoot.loading.model import LoadedModel
from surefoot.loading.open import load_model

MODELS = {
    "llama": SmallModel("llama"),
    "qwen2": SmallModel("qwen2"),
    "qwen3": SmallModel("qwen3"),
    "gemma3": SmallModel("gemma3", layers=7, window=8),
}
IDS = [int(token) for token in np.random.default_rng(1).integers(0, 96, 40)]


@pytest.mark.parametrize("family", MODELS)
def test_gguf(family: str, tmp_path: Path) -> None:
    model = MODELS[family]
    tensors = model.tensors()
    loaded = load_model(write_gguf(tmp_path / "m.gguf", family, model.metadata(), tensors))
    wanted = reference_logits(model.family(), tensors, IDS)
    run = GraphRun(loaded.spec, loaded.weights)
    np.testing.assert_allclose(run.feed(IDS), wanted, atol=1e-4)
    # A chunk and single tokens behind it see the same windows.
    run.feed(IDS[:20])
    for position in range(20, 40):
        found = run.feed(IDS[position : position + 1], start=position)
        np.testing.assert_allclose(found[0], wanted[position], atol=1e-4)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize("shards", [(), ("a.safetensors", "b.safetensors")], ids=["one", "shards"])
def test_hugging_face(family: str, shards: tuple[str, ...], tmp_path: Path) -> None:
    """As bfloat16, which the tensors are cut to first; Gemma stores norm weights less one."""
    model = MODELS[family]
    stored, meant = {}, {}
    for name, values in model.tensors().items():
        less = 1 if family == "gemma3" and "norm" in name else 0
        halves = to_bfloat16(values - np.float32(less))
        stored[hf_name(name, family)] = halves
        meant[name] = (halves.astype(np.uint32) << 16).view(np.float32) + less
    loaded = load_model(write_folder(tmp_path / "m", model.config(), stored, shards), "none")
    wanted = reference_logits(model.family(), meant, IDS)
    found = GraphRun(loaded.spec, loaded.weights).feed(IDS)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_the_text_half_of_a_gemma_that_sees(tmp_path: Path) -> None:
    model = MODELS["gemma3"]
    tensors = model.tensors()
    stored = {
        "language_model." + hf_name(name, "gemma3"): values - ("norm" in name)
        for name, values in tensors.items()
    }
    stored["vision_tower.patch.weight"] = np.zeros((2, 2), dtype=np.float32)
    config = {"model_type": "gemma3", "text_config": model.config()}
    loaded = load_model(write_folder(tmp_path / "m", config, stored), "none")
    wanted = reference_logits(model.family(), tensors, IDS)
    found = GraphRun(loaded.spec, loaded.weights).feed(IDS)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


MIXTURES = [
    (Type.Q4_K, Type.Q6_K),
    (Type.Q5_K, Type.Q6_K),
    (Type.Q2_K, Type.Q3_K),
    (Type.IQ4_XS, Type.Q5_1),
]


def write_mixture(
    path: Path, linear: Type, value_type: Type
) -> tuple[SmallModel, dict[str, NDArray[np.float32]]]:
    """As in Q4_K_M files: v in more bits than q and k, the tied embedding in Q6_K. The model, and
    the values that its tensors stand for."""
    model = SmallModel("llama", layers=1, hidden=256, mlp=256, heads=4, head_dim=64)
    tensors, kinds, meant = model.tensors(), {}, {}
    special = {"blk.0.attn_v.weight": value_type, "token_embd.weight": Type.Q6_K}
    for place, (name, values) in enumerate(model.tensors().items()):
        meant[name] = values
        if values.ndim == 2:
            kinds[name] = special.get(name, linear)
            tensors[name] = spread_bytes(kinds[name], values.shape, place)
            meant[name] = gguf.dequantize(tensors[name], kinds[name])
    write_gguf(path, "llama", model.metadata(), tensors, kinds)
    return model, meant


@pytest.mark.parametrize(("linear", "value_type"), MIXTURES, ids=lambda kind: kind.name)
def test_mixtures_of_block_types(linear: Type, value_type: Type, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    model, meant = write_mixture(path, linear, value_type)
    loaded = load_model(path)
    wanted = reference_logits(model.family(), meant, IDS)
    found = GraphRun(loaded.spec, loaded.weights).feed(IDS)
    assert relative_error(found, wanted.astype(np.float32)) < 1e-4
    assert np.abs(wanted).max() > 1


@pytest.mark.parametrize(("linear", "value_type"), MIXTURES, ids=lambda kind: kind.name)
def test_every_width_from_two_on_gives_the_same_bits(
    linear: Type, value_type: Type, tmp_path: Path
) -> None:
    """What the deterministic mode rests on, for each form of the weights."""
    write_mixture(tmp_path / "m.gguf", linear, value_type)
    assert_widths_agree(load_model(tmp_path / "m.gguf"))


@pytest.mark.parametrize("family", MODELS)
def test_every_family_gives_the_same_bits_too(family: str, tmp_path: Path) -> None:
    model = MODELS[family]
    path = write_gguf(tmp_path / "m.gguf", family, model.metadata(), model.tensors())
    assert_widths_agree(load_model(path, "q8"))


def assert_widths_agree(loaded: LoadedModel) -> None:
    run = GraphRun(loaded.spec, loaded.weights, accuracy_level=4)
    whole = run.feed(IDS)
    for width in (2, 5, 20):
        pieces = [run.feed(IDS[at : at + width], at) for at in range(0, len(IDS), width)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)


def spread_bytes(kind: Type, shape: tuple[int, int], seed: int) -> NDArray[np.uint8]:
    """Random bytes whose values have a standard deviation of about 0.1."""
    gain = 0.01
    spread = gguf.dequantize(random_bytes(kind, shape, seed, gain), kind).std()
    return random_bytes(kind, shape, seed, gain * 0.1 / float(spread))


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [(2, (8, 0, 8)), ([True, True, False], (8, 8, 0)), ([0, 1, 0], (0, 8, 0))],
    ids=str,
)
def test_a_gemma_may_name_its_pattern(
    pattern: object, windows: tuple[int, ...], tmp_path: Path
) -> None:
    key = "gemma3.attention.sliding_window_pattern"
    model = SmallModel("gemma3", layers=3, window=8, extra_metadata={key: pattern})
    path = write_gguf(tmp_path / "m.gguf", "gemma3", model.metadata(), model.tensors())
    assert load_model(path).spec.windows == windows
    folder = tmp_path / "folder"
    tensors = {hf_name(name, "gemma3"): values for name, values in model.tensors().items()}
    kinds = ["sliding_attention" if window else "full_attention" for window in windows]
    assert (
        load_model(
            write_folder(folder, model.config() | {"layer_types": kinds}, tensors)
        ).spec.windows
        == windows
    )


def test_flags_for_other_layers_than_there_are(tmp_path: Path) -> None:
    key = "gemma3.attention.sliding_window_pattern"
    model = SmallModel("gemma3", window=8, extra_metadata={key: [True]})
    path = write_gguf(tmp_path / "m.gguf", "gemma3", model.metadata(), model.tensors())
    with pytest.raises(ModelError, match="sliding_window_pattern has 1 flags for 2 layers"):
        load_model(path)


def test_eight_bit_activations_stay_near(tmp_path: Path) -> None:
    """The level that is served: each logit within a tenth of their spread of the exact one."""
    model = MODELS["gemma3"]
    tensors = model.tensors()
    loaded = load_model(write_gguf(tmp_path / "m.gguf", "gemma3", model.metadata(), tensors), "q8")
    wanted = reference_logits(model.family(), tensors, IDS)
    found = GraphRun(loaded.spec, loaded.weights, accuracy_level=4).feed(IDS)
    assert np.sqrt(((found - wanted) ** 2).mean()) < 0.1 * wanted.std()


def test_float_matrices_of_a_gguf_file_on_request(tmp_path: Path) -> None:
    model = MODELS["qwen2"]
    path = write_gguf(tmp_path / "m.gguf", "qwen2", model.metadata(), model.tensors())
    as_it_is, eight = load_model(path), load_model(path, "q8")
    name = "blk.0.ffn_up.weight"
    exact = dequantize(as_it_is.weights.load(name))
    np.testing.assert_array_equal(exact, model.tensors()[name])
    assert 1e-4 < relative_error(dequantize(eight.weights.load(name)), exact) < 0.005
    assert as_it_is.fingerprint != eight.fingerprint
