"""Any value of a file's tokenizer keys is a `ModelError` in one line, or a tokenizer that works."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tiny_text import tiny_metadata
from surefoot.errors import InvalidRequestError, ModelError
from surefoot.text.template.chat import ChatTemplate
from surefoot.text.tokenizer import Tokenizer

KEYS = [
    *tiny_metadata(),
    "tokenizer.ggml.scores",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_space_prefix",
]
SCALARS = (
    st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["llama", "gpt2", "{{ messages[0].content }}", "<|im_end|>"])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.lists(st.text(max_size=4), max_size=300)
PIECES = ["<unk>", "<s>", "</s>", "\u2581", "h", "e", "he", "\u2581he", "<0x41>"]
SENTENCEPIECE: dict[str, object] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -4.0, -3.0, -2.0, -1.0, -0.5, 0.0],
    "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 6],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.chat_template": "{{ messages[0].content }}</s>",
}
HI = [{"role": "user", "content": "hello <|im_end|>"}]


@settings(max_examples=100, deadline=None)
@given(
    base=st.sampled_from([tiny_metadata(), SENTENCEPIECE]),
    changes=st.dictionaries(st.sampled_from(KEYS), st.none() | VALUES, max_size=3),
)
def test_any_value_of_any_key(base: dict[str, object], changes: dict[str, object]) -> None:
    metadata = dict(base)
    for key, value in changes.items():
        metadata[key] = value
        if value is None:
            metadata.pop(key)
    try:
        tokenizer = Tokenizer.from_gguf_metadata(metadata)
        template = ChatTemplate.from_gguf_metadata(metadata)
    except ModelError as error:
        message = error.message
    else:
        message = ""
        tokenizer.decode(tokenizer.encode("hello", parse_special=True))
        if template is not None:
            tokenizer.also_end_at(template.end_of_turn_ids(tokenizer))
            try:
                template.encode_chat(tokenizer, HI)
            except InvalidRequestError as error:
                message = error.message
    assert "\n" not in message


def test_the_metadata_as_it_is_works() -> None:
    for metadata, text in ((tiny_metadata(), "hello"), (SENTENCEPIECE, "he")):
        tokenizer = Tokenizer.from_gguf_metadata(metadata)
        assert tokenizer.decode(tokenizer.encode(text, parse_special=True)) == text
    with pytest.raises(ModelError):
        Tokenizer.from_gguf_metadata({})
