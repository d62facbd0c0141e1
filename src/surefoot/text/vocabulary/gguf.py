"""A vocabulary from GGUF metadata: byte-level BPE, the `gpt2` tokenizer model (`llama`, that is
SentencePiece, is `gguf_sentencepiece`).

Knows GGUF's key names and nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import tokenizers
from tokenizers.models import BPE

from surefoot.errors import ModelError
from surefoot.text.vocabulary.byte_alphabet import byte_level_bytes
from surefoot.text.vocabulary.gguf_keys import (
    END_KEYS,
    added_tokens,
    get,
    require_items,
    token_id_of,
)
from surefoot.text.vocabulary.pre_tokenizers import (
    PRE_TOKENIZATIONS,
    PreTokenization,
    pre_tokenization,
)
from surefoot.text.vocabulary.sentencepiece import sentencepiece_vocabulary
from surefoot.text.vocabulary.special_text import AddedToken
from surefoot.text.vocabulary.vocabulary import Vocabulary, well_known_end_ids


def gguf_vocabulary(metadata: Mapping[str, object], pre: str | None = None) -> Vocabulary:
    """`pre` overrides `tokenizer.ggml.pre`. Raises `ModelError` naming the key at fault."""
    model = get(metadata, "model", str)
    if model == "llama":
        return sentencepiece_vocabulary(metadata)
    if model != "gpt2":
        raise ModelError(
            f"tokenizer model {model!r} (tokenizer.ggml.model) is not supported; "
            "supported: gpt2, llama"
        )
    rule = _pre_tokenization(metadata, pre)
    tokens = require_items(metadata, "tokens", str)
    added = added_tokens(metadata, tokens)
    ends = {key: token_id_of(metadata, key, len(tokens)) for key in END_KEYS}
    add_bos = get(metadata, "add_bos_token", bool)
    bos_id = token_id_of(metadata, "bos_token_id", len(tokens))
    return Vocabulary(
        backend=_backend(metadata, tokens, added, rule),
        tokens=tokens,
        added=added,
        to_bytes=byte_level_bytes,
        bos_id=bos_id,
        eos_id=ends["eos_token_id"],
        add_bos=bos_id is not None and (rule.add_bos if add_bos is None else add_bos),
        end_ids=well_known_end_ids(added) | {i for i in ends.values() if i is not None},
    )


def _pre_tokenization(metadata: Mapping[str, object], pre: str | None) -> PreTokenization:
    name = pre or get(metadata, "pre", str)
    if not name:
        raise ModelError(
            "the file does not name its pre-tokenizer (tokenizer.ggml.pre is missing); "
            f"give it by hand (--pre-tokenizer), one of: {', '.join(sorted(PRE_TOKENIZATIONS))}"
        )
    return pre_tokenization(name)


def _backend(
    metadata: Mapping[str, object],
    tokens: Sequence[str],
    added: Sequence[AddedToken],
    rule: PreTokenization,
) -> tokenizers.Tokenizer:
    merges = require_items(metadata, "merges", str)
    vocab = {text: token_id for token_id, text in enumerate(tokens)}
    if rule.ignore_merges:
        _hide_control_tokens(vocab, added)
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        model = BPE(
            vocab=vocab,
            merges=cast(list[tuple[str, str]], pairs),
            ignore_merges=rule.ignore_merges,
        )
    except Exception as error:  # the binding raises bare Exception for a bad merge
        reason = " ".join(str(error).split())
        raise ModelError(f"tokenizer.ggml.merges cannot be used: {reason}") from error
    backend = tokenizers.Tokenizer(model)
    normalizer = rule.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = rule.pre_tokenizer()
    backend.add_tokens(
        [
            tokenizers.AddedToken(token.text, special=False, normalized=False)
            for token in added
            if not token.special
        ]
    )
    return backend


def _hide_control_tokens(vocab: dict[str, int], added: Sequence[AddedToken]) -> None:
    """Rename control tokens to what no text can spell: under `ignore_merges` plain text that
    happens to be one piece would otherwise become the control token. A byte-level piece never
    holds a NUL character (that byte is spelled U+0100)."""
    for token in added:
        if token.special and vocab.get(token.text) == token.token_id:
            del vocab[token.text]
            vocab[f"\0{token.token_id}"] = token.token_id
