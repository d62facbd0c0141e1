"""Hugging Face folders: what they say about text, and what is wrong with broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support.model_files import SmallModel, hf_name, write_folder
from surefoot.errors import ModelError
from surefoot.loading.folder import model_in
from surefoot.loading.hf.config import llama3_factors
from surefoot.loading.model import TextFiles
from surefoot.loading.open import load_model

MODEL = SmallModel("qwen2")


def tensors(model: SmallModel = MODEL) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {hf_name(name, model.architecture): v for name, v in model.tensors().items()}


def folder(tmp_path: Path, **config: object) -> Path:
    return write_folder(tmp_path / "m", MODEL.config() | config, tensors())


def test_what_the_files_say_about_text(tmp_path: Path) -> None:
    path = folder(tmp_path, eos_token_id=7)
    files = {
        "tokenizer.json": {},
        "tokenizer_config.json": {
            "bos_token": {"content": "<s>"},
            "eos_token": "</s>",
            "add_bos_token": False,
            "chat_template": "in the settings",
        },
        "generation_config.json": {"eos_token_id": [7, 5]},
    }
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    wanted = TextFiles(path / "tokenizer.json", "<s>", "</s>", False, (5, 7), "in the settings")
    assert load_model(path).text == wanted
    (path / "chat_template.jinja").write_text("in its own file")
    text = load_model(path).text
    assert text is not None
    assert text.chat_template == "in its own file"


def test_the_template_named_default_of_several(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "tokenizer.json").write_text("{}")
    named = [{"name": "rag", "template": "a"}, {"name": "default", "template": "b"}]
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    text = load_model(path).text
    assert text == TextFiles(path / "tokenizer.json", None, None, None, (), "b")


def test_no_tokenizer_no_text(tmp_path: Path) -> None:
    assert load_model(folder(tmp_path)).text is None


def test_a_folder_is_a_model_by_its_config(tmp_path: Path) -> None:
    path = folder(tmp_path)
    assert model_in(path) == path
    (path / "config.json").unlink()
    with pytest.raises(ModelError, match=r"m holds no \.gguf file and no config\.json"):
        model_in(path)
    with pytest.raises(ModelError, match=r"neither a GGUF file nor a config\.json"):
        load_model(path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; supported: gemma3, "),
        ({"hidden_act": "relu"}, "hidden_act = 'relu' in config.json is not supported"),
        ({"hidden_size": "64"}, "hidden_size in config.json is '64', not a number"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers in config.json is 2.5, not a whole"),
        ({"num_hidden_layers": 3}, "tensor blk.2.attn_norm.weight is missing"),
        ({"num_hidden_layers": 1}, "tensor blk.1.attn_norm.weight is no part of a qwen2 model"),
        ({"vocab_size": 100}, r"token_embd.weight has shape \[96, 64\], the metadata calls for"),
        ({"tie_word_embeddings": False}, "tensor output.weight is missing"),
        ({"attention_bias": False}, "tensor blk.0.attn_q.bias is no part of"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, r"rope scaling \(yarn\)"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "the llama3 rope parameters cannot be used"),
        ({"rope_scaling": "x"}, "the rope parameters in config.json are 'x'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"layer_types": ["linear"], "sliding_window": 8}, "layer_types in config.json do not fit"),
        ({"layer_types": ["linear"] * 2, "sliding_window": 8}, "layer_types in config.json are"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor in config.json is 0.0, not"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 4,
                    "high_freq_factor": 4,
                    "original_max_position_embeddings": 8192,
                }
            },
            "the llama3 rope parameters cannot be used: float division by zero",
        ),
        ({"quantization_config": {"quant_method": "gptq"}}, "m is quantized by gptq"),
        ({"num_attention_heads": 0}, "num_attention_heads in config.json is 0, not at least 1"),
        ({"num_key_value_heads": 3}, "m has 4 heads for 3 of keys and values"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps in config.json is -1.0, not above 0"),
        ({"max_position_embeddings": 1 << 40}, "max_position_embeddings is .* above 16777216"),
    ],
)
def test_configurations_that_are_refused(
    config: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(folder(tmp_path, **config))


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({"sliding_window": 8}, (8, 8)),
        ({"sliding_window": 8, "use_sliding_window": False}, ()),
        ({"sliding_window": 8, "max_window_layers": 1}, (0, 8)),
        ({"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}, (8, 0)),
        ({"sliding_window": 4096}, ()),
        ({"sliding_window": None}, ()),
    ],
)
def test_windows(config: dict[str, object], windows: tuple[int, ...], tmp_path: Path) -> None:
    assert load_model(folder(tmp_path, **config)).spec.windows == windows


def test_both_styles_of_rope_keys(tmp_path: Path) -> None:
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}
    spec = load_model(folder(tmp_path, rope_parameters=linear)).spec
    assert (spec.rope_theta, spec.rope_factors) == (5e5, (2.0,) * 16)
    old = {"type": "linear", "factor": 2.0}
    spec = load_model(folder(tmp_path, rope_scaling=old)).spec
    assert (spec.rope_theta, spec.rope_factors) == (1e6, (2.0,) * 16)
    both = {"full_attention": linear, "sliding_attention": {"rope_theta": 3.0}}
    spec = load_model(folder(tmp_path, rope_parameters=both)).spec
    assert spec.rope_theta == 5e5


def test_llama3_factors_keep_short_waves_and_slow_long_ones() -> None:
    rope = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
    factors = llama3_factors(rope | {"original_max_position_embeddings": 8192}, 5e5, 128)
    assert factors[0] == 1
    assert factors[-1] == 8
    assert list(factors) == sorted(factors)


def test_files_that_are_missing_or_damaged(tmp_path: Path) -> None:
    path = write_folder(
        tmp_path / "m", MODEL.config(), tensors(), ("a.safetensors", "b.safetensors")
    )
    whole = (path / "b.safetensors").read_bytes()
    for content, message in (
        (whole[:-1], "b.safetensors: tensor .* ends at byte .*: it is truncated"),
        (whole[:100], "b.safetensors is no whole safetensors file"),
        (b"abc", "b.safetensors is no safetensors file: it has 3 bytes"),
        (b"\x02" + bytes(7) + b"[]", "its header is a list"),
        (b"\x02" + bytes(7) + b"{]", "b.safetensors is no safetensors file"),
    ):
        (path / "b.safetensors").write_bytes(content)
        with pytest.raises(ModelError, match=message):
            load_model(path)
    (path / "b.safetensors").unlink()
    with pytest.raises(ModelError, match=r"m: b.safetensors is missing; model.safetensors.index"):
        load_model(path)
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"x": "../x.safetensors"}}')
    with pytest.raises(ModelError, match="outside its folder"):
        load_model(path)


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    broken = tensors()
    broken["model.layers.1.mlp.up_proj.weight"][3, 4] = np.inf
    weights = load_model(write_folder(tmp_path / "m", MODEL.config(), broken)).weights
    with pytest.raises(
        ModelError, match=r"m: tensor blk\.1\.ffn_up\.weight holds values that are not"
    ):
        weights.load("blk.1.ffn_up.weight")


def test_weights_of_other_kinds_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="m holds pickled weights, which run code when read"):
        load_model(path)
    (path / "pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match="m holds no safetensors file"):
        load_model(path)
    odd = write_folder(tmp_path / "odd", MODEL.config(), {"x": np.zeros(2, dtype=np.int64)})
    with pytest.raises(ModelError, match="tensor x has type I64, which is not supported"):
        load_model(odd)


def test_onnx_folders_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.mkdir()
    (path / "model.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="m holds an ONNX graph exported by Optimum or another"):
        load_model(path)
    (path / "genai_config.json").write_text('{"model": {"type": "phi3"}}')
    assert model_in(path) == path
    with pytest.raises(ModelError, match=r"m holds an onnxruntime-genai graph \(phi3\)"):
        load_model(path)
