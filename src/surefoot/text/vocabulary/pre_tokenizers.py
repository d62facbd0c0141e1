"""How text is cut into pieces before byte-level BPE, by the name GGUF gives it.

The regular expressions are those of the models' own tokenizer.json; llama.cpp's `llama-vocab.cpp`
lists the same ones by the same names. A wrong rule gives a model that works a little worse for no
visible reason, so a name not listed here is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.normalizers import NFC, Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from surefoot.errors import ModelError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + r"\p{N}" + _REST
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """`ignore_merges`: a piece that is a token as a whole is that token, whatever the merges say.
    `add_bos`: what holds when the file does not say. `digits`: each numeric character is cut off
    first. `patterns` cut one after the other; none means GPT-2's. `nfc`: Unicode normalization."""

    patterns: tuple[str, ...] = ()
    digits: bool = False
    ignore_merges: bool = False
    add_bos: bool = False
    nfc: bool = False

    def pre_tokenizer(self) -> PreTokenizer:
        steps: list[PreTokenizer] = [Digits(individual_digits=True)] if self.digits else []
        steps += [Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        steps.append(ByteLevel(add_prefix_space=False, use_regex=not self.patterns))
        return Sequence(steps)

    def normalizer(self) -> Normalizer | None:
        return NFC() if self.nfc else None


_GPT2_LIKE = PreTokenization()
_DIGITS = PreTokenization(digits=True)
_QWEN = PreTokenization((_QWEN2,), nfc=True)
_LLAMA_BPE = PreTokenization((_LLAMA3,), ignore_merges=True, add_bos=True)

PRE_TOKENIZATIONS: dict[str, PreTokenization] = {
    "default": PreTokenization(_DEFAULT),
    "gpt-2": _GPT2_LIKE,
    "llama-bpe": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "deepseek-r1-qwen": _QWEN,
    "qwen2": _QWEN,
    "refact": _DIGITS,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "tekken": PreTokenization((_TEKKEN,), ignore_merges=True, add_bos=True),
}


def pre_tokenization(name: str) -> PreTokenization:
    """Raises `ModelError` for a name not in the table, listing those that are."""
    try:
        return PRE_TOKENIZATIONS[name]
    except KeyError:
        known = ", ".join(sorted(PRE_TOKENIZATIONS))
        raise ModelError(
            f"pre-tokenizer {name!r} is not supported; supported: {known} (if one of these is "
            "its equal, --pre-tokenizer takes it instead)"
        ) from None
