"""`surefoot inspect`: what a model file is, and what of it fits on this machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.app.console import human_bytes, say
from surefoot.app.environment import free_memory, model_hub, model_store
from surefoot.cli.flags.model import QuantizeTo
from surefoot.loading.store.resolve import resolve_model

if TYPE_CHECKING:
    from surefoot.loading.fidelity import Fidelity
    from surefoot.loading.model import LoadedModel

EXACT = 1e-6
"""Errors below this part of the largest value are float32's own rounding."""


def inspect(
    model: Annotated[
        str, typer.Argument(help="A GGUF file, a model's folder, owner/name[:file] or 'default'.")
    ] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    quantize: QuantizeTo = None,
) -> None:
    """Show a model's architecture, quantization and memory, and what would fit."""
    from surefoot.app.stack import quantize_flag
    from surefoot.loading.open import load_model

    bits = quantize_flag(quantize)
    loaded = load_model(resolve_model(model, model_store(), hub=model_hub(), say=say), bits)
    facts = model_facts(loaded, free_memory())
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for line in describe(loaded, facts):
        print(line)


def model_facts(loaded: LoadedModel, free: int | None) -> dict[str, object]:
    """Everything `inspect` tells, as JSON has it; sizes in bytes, `free` as measured."""
    spec = loaded.spec
    return {
        "model": loaded.name,
        "fingerprint": loaded.fingerprint,
        "spec": asdict(spec),
        "tensor_types": dict(Counter(loaded.tensor_types.values()).most_common()),
        "computed": [
            asdict(fidelity) | {"exact": fidelity.error < EXACT} for fidelity in fidelities(loaded)
        ],
        "weight_bytes": loaded.weight_bytes,
        "kv_bytes_per_1000_tokens": 1000 * spec.kv_bytes_per_token,
        "kv_bytes_full_context": spec.context_length * spec.kv_bytes_per_token,
        "free_bytes": free,
        "fits": fits(free, loaded.weight_bytes, spec.kv_bytes_per_token, spec.context_length),
    }


def fidelities(loaded: LoadedModel) -> list[Fidelity]:
    """What becomes of each tensor type, measured on one of its matrices."""
    from surefoot.loading.fidelity import measure

    return measure(loaded.weights, loaded.weights.names())


def fidelity_line(entry: Mapping[str, object]) -> str:
    """ "Q6_K in 9 tensors: 8 bits, blocks of 16, exactly"."""
    error = entry["error"]
    assert isinstance(error, float)
    how = "exactly" if entry["exact"] else f"off by at most {error:.2%} of the largest value"
    return f"{entry['type_name']} in {entry['num_tensors']} tensors: {entry['form']}, {how}"


def fits(
    free: int | None, weight_bytes: int, kv_bytes_per_token: int, context_length: int
) -> dict[str, int] | None:
    """Tokens of context that the memory beside the weights holds, and how many rows of full
    length that is. None where the free memory is not known."""
    if free is None:
        return None
    tokens = max(0, free - weight_bytes) // kv_bytes_per_token
    return {"tokens": tokens, "full_rows": tokens // context_length}


def describe(loaded: LoadedModel, facts: dict[str, Any]) -> list[str]:
    """The facts for a reader, a label a line."""
    spec = loaded.spec
    computed = [fidelity_line(entry) for entry in facts["computed"]]
    heads = f"{spec.num_heads} heads, {spec.num_kv_heads} of keys and values"
    rows = [
        ("model", loaded.name),
        ("architecture", f"{spec.architecture}, {spec.num_layers} layers, width "
         f"{spec.hidden_size} ({spec.intermediate_size} inside), {heads} of {spec.head_dim}"),
        ("vocabulary", f"{spec.vocab_size:,} tokens" + (", tied" if spec.tied_embedding else "")),
        ("context", f"{spec.context_length:,} tokens, rope base {spec.rope_theta:g}"),
        *(("computed as" if not place else "", line) for place, line in enumerate(computed)),
        ("weights", human_bytes(loaded.weight_bytes)),
        ("KV cache", f"{human_bytes(1000 * spec.kv_bytes_per_token)} per 1,000 tokens, "
         f"{human_bytes(spec.context_length * spec.kv_bytes_per_token)} a full context"),
        ("fits here", _fit_line(facts)),
    ]  # fmt: skip
    return [f"{label + ':' if label else '':14} {text}" for label, text in rows]


def _fit_line(facts: dict[str, object]) -> str:
    free, fit = facts["free_bytes"], facts["fits"]
    if not isinstance(free, int) or not isinstance(fit, dict):
        return "this system does not say how much memory is free"
    if fit["tokens"] == 0:
        return f"no: {human_bytes(free)} are free"
    room = f"{fit['tokens']:,} tokens of context ({fit['full_rows']:,} full rows)"
    return f"{room} beside the weights, in {human_bytes(free)} free"
