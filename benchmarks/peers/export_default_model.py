"""A Llama-like GGUF file in the other engines' forms, so that all of them run one model.

    python benchmarks/peers/export_default_model.py SmolLM2-135M-Instruct.Q4_1.gguf OUT

writes `OUT/hf` (config.json, safetensors, tokenizer, chat template: for transformers),
`OUT/onnx-int4` (onnxruntime-genai's model builder, 4 bits in blocks of 32), `OUT/openvino-int8` and
`OUT/openvino-int4` (optimum-intel) and `OUT/model.Q4_0.gguf` (llama.cpp's quantizer, the form that
it computes fastest), each where its packages are installed; what cannot be made is left out with
the reason. The weights are those of the file, dequantized: the 4-bit forms made of them are rounded
once more, by their makers' own rules.

Needs `gguf safetensors tokenizers transformers torch`, for ONNX `onnxruntime-genai onnx onnx-ir`,
for Q4_0 `llama-cpp-python`.
optimum-intel wants other versions of some: run once more with another interpreter and `--only`; the
`hf` folder is kept when it is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Fields = Mapping[str, Any]

ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def fields_of(reader: Any) -> dict[str, Any]:
    return {name: field.contents() for name, field in reader.fields.items()}


def hf_name(name: str) -> str:
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`."""
    if name in ENDS:
        return ENDS[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.{kind}"


def halves(values: Any, heads: int) -> Any:
    """GGUF interleaves the two halves of a head's rows of q and k (rotation of neighbours); Hugging
    Face keeps one behind the other."""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def config_of(fields: Fields, tied: bool) -> dict[str, Any]:
    heads = fields["llama.attention.head_count"]
    hidden = fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "num_hidden_layers": fields["llama.block_count"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 10),
        "rope_theta": fields["llama.rope.freq_base"],
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def write_weights(reader: Any, fields: Fields, folder: Path) -> bool:
    """Whether the output matrix is the embedding."""
    import gguf
    import numpy
    from safetensors.numpy import save_file

    counts = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in counts:
            values = halves(values, counts[part])
        tensors[hf_name(tensor.name)] = numpy.ascontiguousarray(values)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return "lm_head.weight" not in tensors


def write_tokenizer(fields: Fields, folder: Path) -> None:
    """Byte-level BPE with each digit apart, as `tokenizer.ggml.pre = smollm` means it."""
    import tokenizers
    from tokenizers.decoders import ByteLevel as ByteDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    if fields["tokenizer.ggml.pre"] != "smollm":
        raise SystemExit(f"no rule for the pre-tokenizer {fields['tokenizer.ggml.pre']!r}")
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(BPE({text: i for i, text in enumerate(tokens)}, merges))
    backend.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    backend.decoder = ByteDecoder()
    control = [
        t for t, k in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if k == 3
    ]
    backend.add_special_tokens([tokenizers.AddedToken(text, special=True) for text in control])
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "model_max_length": fields["llama.context_length"],
        "chat_template": fields["tokenizer.chat_template"],
    }
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_hf_folder(model: Path, folder: Path) -> None:
    import gguf

    reader = gguf.GGUFReader(model)
    fields = fields_of(reader)
    if fields["general.architecture"] != "llama":
        raise SystemExit(f"{model.name} is a {fields['general.architecture']} model, not llama")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config_of(fields, write_weights(reader, fields, folder)))
    write_tokenizer(fields, folder)


OPENVINO_KINDS = {"int8": (), "int4": ("--group-size", "64")}
"""Groups of 64, not optimum-intel's 128: the default model's width, 576, is no multiple of that."""


def exports(source: Path, out: Path) -> dict[str, list[str]]:
    """The other makers' own commands, by the name of the folder they write."""
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    openvino = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino"]
    task = ["--task", "text-generation-with-past"]
    return {
        "onnx-int4": [
            *builder,
            *("-m", str(source), "-i", str(source), "-o", str(out / "onnx-int4")),
            *("-p", "int4", "-e", "cpu", "-c", str(out / "cache")),
        ],
        **{
            f"openvino-{kind}": [
                *openvino,
                *("-m", str(source), *task, "--weight-format", kind, *more),
                str(out / f"openvino-{kind}"),
            ]
            for kind, more in OPENVINO_KINDS.items()
        },
    }


Q4_0 = 2
"""`LLAMA_FTYPE_MOSTLY_Q4_0`."""


def requantize(model: Path, path: Path) -> None:
    """llama.cpp's own quantizer, of a file that is quantized already."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = Q4_0, True
    names = str(model).encode(), str(path).encode()
    if llama_cpp.llama_model_quantize(*names, params):
        raise OSError(f"{model.name} could not be quantized")


def run_requantize(model: Path, path: Path) -> bool:
    try:
        requantize(model, path)
    except (ImportError, OSError) as error:
        print(f"q4_0: left out: {error}", flush=True)
        return False
    print("q4_0: written", flush=True)
    return True


def run_export(name: str, command: Sequence[str]) -> bool:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        print(f"{name}: left out: {lines[-1] if lines else 'no reason given'}", flush=True)
    else:
        print(f"{name}: written", flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="forms to make, as q4_0,onnx-int4")
    args = parser.parse_args()
    source = args.out / "hf"
    if not (source / "tokenizer_config.json").is_file():
        write_hf_folder(args.model, source)
    print("hf: written", flush=True)
    wanted = args.only.split(",") if args.only else None
    commands = exports(source, args.out)
    made = [run_export(n, c) for n, c in commands.items() if wanted is None or n in wanted]
    if wanted is None or "q4_0" in wanted:
        made.append(run_requantize(args.model, args.out / "model.Q4_0.gguf"))
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(main())
