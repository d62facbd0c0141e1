"""What a tokenizer is made of, whichever file it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tokenizers

from surefoot.text.vocabulary.byte_alphabet import TokenBytes
from surefoot.text.vocabulary.special_text import AddedToken

END_TEXTS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|endofturn|>",
    "[|endofturn|]",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<EOT>",
    "<eos>",
    "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
"""Texts that end a turn or a text wherever they are control tokens: those of the ChatML, Llama 3,
Gemma, Phi, Command-R, EXAONE, gpt-oss, SmolVLM, Llama 2 and DeepSeek families. A file's own eos id
is often only one of the two that its model uses."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`backend` encodes plain text only: no special token of `added` is found by it. `tokens` are
    the texts by id. `strips_leading_space`: decoded text loses its first space (SentencePiece).
    `add_bos`: a prompt starts with `bos_id`."""

    backend: tokenizers.Tokenizer
    tokens: Sequence[str]
    added: Sequence[AddedToken]
    to_bytes: TokenBytes
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    end_ids: frozenset[int]
    strips_leading_space: bool = False


def well_known_end_ids(added: Iterable[AddedToken]) -> frozenset[int]:
    """Ids of the control tokens whose text is in `END_TEXTS`."""
    return frozenset(token.token_id for token in added if token.special and token.text in END_TEXTS)
