"""GGUF metadata to a spec, key by key, without a file."""

from __future__ import annotations

import pytest

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec
from surefoot.loading.gguf.spec import Fields, gemma3_windows, read_spec

TIED, UNTIED = ("token_embd.weight",), ("token_embd.weight", "output.weight")


def metadata(architecture: str = "llama", **changes: object) -> dict[str, object]:
    """`changes` are keys below the architecture, `__` for a dot; None removes one."""
    keys: dict[str, object] = {
        "block_count": 2,
        "context_length": 512,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 5e5,
    }
    if architecture == "gemma3":
        keys["attention.sliding_window"] = 16
    keys |= {key.replace("__", "."): value for key, value in changes.items()}
    found = {f"{architecture}.{key}": value for key, value in keys.items() if value is not None}
    return {"general.architecture": architecture, **found}


def spec(
    architecture: str = "llama", freqs: tuple[float, ...] = (), **changes: object
) -> ModelSpec:
    return read_spec("m.gguf", metadata(architecture, **changes), 100, TIED, freqs)


def complaint(architecture: str = "llama", freqs: tuple[float, ...] = (), **changes: object) -> str:
    with pytest.raises(ModelError) as caught:
        spec(architecture, freqs, **changes)
    assert caught.value.message.startswith("m.gguf: ")
    return caught.value.message.removeprefix("m.gguf: ")


def test_the_common_part() -> None:
    found = spec()
    assert found == ModelSpec(
        architecture="llama",
        num_layers=2,
        hidden_size=64,
        intermediate_size=96,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=100,
        context_length=512,
        rms_eps=1e-6,
        rope_theta=5e5,
        rope_interleaved=True,
        tied_embedding=True,
    )
    assert found.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert not read_spec("m.gguf", metadata(), 100, UNTIED).tied_embedding


@pytest.mark.parametrize(
    ("architecture", "interleaved", "bias", "norm"),
    [
        ("llama", True, False, False),
        ("qwen2", False, True, False),
        ("qwen3", False, False, True),
        ("gemma3", False, False, True),
    ],
)
def test_what_tells_the_families_apart(
    architecture: str, interleaved: bool, bias: bool, norm: bool
) -> None:
    found = spec(architecture)
    assert (found.rope_interleaved, found.qkv_bias, found.qk_norm) == (interleaved, bias, norm)


def test_gemma3() -> None:
    found = spec("gemma3", block_count=8)
    assert found.windows == (16, 16, 16, 16, 16, 0, 16, 16)
    assert found.local_rope_theta == 10000.0
    assert found.embedding_scale == 8.0
    assert found.post_norms
    assert found.activation == "gelu_tanh"
    assert found.attention_scale is None
    assert spec("gemma3", rope__freq_base_swa=2e4).local_rope_theta == 2e4


def test_the_largest_gemma3_scales_its_scores_by_its_width() -> None:
    found = spec("gemma3", block_count=62, embedding_length=5376, attention__head_count=32)
    assert found.attention_scale == (5376 / 32) ** -0.5


@pytest.mark.parametrize(
    ("layers", "pattern", "windows"),
    [
        (1, 6, (9,)),
        (6, 6, (9, 9, 9, 9, 9, 0)),
        (4, 2, (9, 0, 9, 0)),
        (3, 1, (0, 0, 0)),
    ],
)
def test_windows_by_pattern(layers: int, pattern: int, windows: tuple[int, ...]) -> None:
    assert gemma3_windows(layers, 9, pattern) == windows


@pytest.mark.parametrize(
    ("changes", "freqs", "factors"),
    [
        ({}, (), ()),
        ({"rope__scaling__type": "none"}, (), ()),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}, (), (8.0,) * 8),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 1.0}, (), ()),
        ({"rope__scaling__factor": 4}, (), (4.0,) * 8),
        ({}, (1.0,) * 8, (1.0,) * 8),
        ({"rope__scaling__factor": 32.0}, (2.0,) * 8, (2.0,) * 8),
    ],
)
def test_scaled_rotations(
    changes: dict[str, object], freqs: tuple[float, ...], factors: tuple[float, ...]
) -> None:
    assert spec(freqs=freqs, **changes).rope_factors == factors


@pytest.mark.parametrize(
    ("architecture", "changes", "freqs", "message"),
    [
        ("phi3", {}, (), "architecture 'phi3' is not supported; supported: gemma3, llama, qwen2, "
         "qwen3"),
        ("llama", {"block_count": None}, (), "metadata llama.block_count is missing"),
        ("llama", {"block_count": 2.0}, (), "metadata llama.block_count is 2.0, not int"),
        ("llama", {"block_count": -1}, (), "metadata llama.block_count is -1, not a number "
         "above 0"),
        ("llama", {"rope__freq_base": "x"}, (), "metadata llama.rope.freq_base is 'x', not float"),
        ("llama", {"attention__head_count_kv": 3}, (), "llama has 4 heads for 3 of keys"),
        ("llama", {"context_length": 1 << 25}, (),
         "metadata llama.context_length is 33554432, above 16777216"),
        ("llama", {"rope__dimension_count": 8}, (),
         "llama.rope.dimension_count is 8; only that of the whole head, 16, is supported"),
        ("llama", {"attention__value_length": 8}, (),
         "llama.attention.value_length is 8; only that of the whole head, 16, is supported"),
        ("llama", {"rope__scaling__type": "yarn"}, (), "rope scaling (yarn) is not supported"),
        ("llama", {"rope__scaling__type": "linear"}, (),
         "metadata llama.rope.scaling.factor is missing"),
        ("llama", {"rope__scaling__type": "linear", "rope__scaling__factor": 2.0}, (1.0,) * 8,
         "rope scaling (linear) is not supported"),
        ("llama", {}, (1.0,) * 7, "rope_freqs.weight has 7 factors for 8 pairs"),
        ("gemma3", {"attention__sliding_window": None}, (),
         "metadata gemma3.attention.sliding_window is missing"),
        ("gemma3", {"attention__sliding_window_pattern": [True]}, (),
         "metadata gemma3.attention.sliding_window_pattern has 1 flags for 2 layers"),
        ("gemma3", {"final_logit_softcapping": 30.0}, (),
         "gemma3.final_logit_softcapping is not supported"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, (),
         "gemma3.attn_logit_softcapping is not supported"),
    ],
)  # fmt: skip
def test_what_is_refused(
    architecture: str, changes: dict[str, object], freqs: tuple[float, ...], message: str
) -> None:
    assert complaint(architecture, freqs, **changes) == message


def test_fields_of_each_kind() -> None:
    fields = Fields("m.gguf", {"i": 3, "f": 0.5, "s": "x", "flags": [1, 0], "yes": True})
    assert fields.get("i", int) == 3
    assert fields.get("i", float) == 3.0
    assert fields.get("f", float) == 0.5
    assert fields.get("s", str) == "x"
    assert fields.get("none", int, 7) == 7
    assert fields.flags("flags") == [True, False]
    assert fields.flags("i") is None
    for kind in (int, float, str):
        with pytest.raises(ModelError, match=f"m.gguf: metadata yes is True, not {kind.__name__}"):
            fields.get("yes", kind)
    assert fields.positive("i") == 3.0
    for value in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ModelError, match="not a number above 0"):
            fields.positive("none", value)
