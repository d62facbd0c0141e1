"""How many characters a prompt of so many tokens can have, told before the work of encoding it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.tiny_text import CHATML, tiny_tokenizer
from surefoot.errors import ContextLengthError
from surefoot.text.template.chat import ChatTemplate
from surefoot.text.tokenizer import Tokenizer

TINY = tiny_tokenizer()
MESSAGES = [{"role": "user", "content": "word " * 20}]


@settings(deadline=None)
@given(text=st.text(max_size=200))
@example(text=" " * 200)
@example(text="a" * 200)
@example(text="\x16")
@example(text=unicodedata.normalize("NFD", "각") * 50)
def test_no_text_has_more_characters_than_its_tokens_allow(
    default_tokenizer: Tokenizer, text: str
) -> None:
    """But for bytes that the vocabulary has no token for (0x16, 0xF1): they are left out."""
    ids = default_tokenizer.encode(text, parse_special=False)
    kept = default_tokenizer.decode(ids)
    assert len(kept) <= len(ids) * default_tokenizer.max_chars_per_token


def test_the_bound_is_that_of_the_longest_token() -> None:
    longest = max(len(TINY.token_bytes(token_id)) for token_id in range(TINY.vocab_size))
    assert TINY.max_chars_per_token in (longest, 3 * longest)


def test_a_chat_of_too_many_characters_is_refused_with_both_numbers() -> None:
    template = ChatTemplate(CHATML)
    num_chars = len(template.render(MESSAGES))
    whole = template.encode_chat(TINY, MESSAGES)
    assert template.encode_chat(TINY, MESSAGES, max_chars=num_chars) == whole
    said = f"the prompt has {num_chars} characters; no more than {num_chars - 1} can fit"
    with pytest.raises(ContextLengthError, match=said) as caught:
        template.encode_chat(TINY, MESSAGES, max_chars=num_chars - 1)
    assert caught.value.param == "messages"
