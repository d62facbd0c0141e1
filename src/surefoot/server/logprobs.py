"""Log probabilities in OpenAI's two shapes; knows tokens and numbers, nothing of requests."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from surefoot.core.request import TokenLogprobs
from surefoot.server.state import Tokenizer


class TokenNames:
    """How a token is shown. A special token has no bytes: it gives no text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._textless = tokenizer.special_ids | tokenizer.end_ids

    def bytes_of(self, token_id: int) -> bytes:
        if token_id in self._textless:
            return b""
        return self._tokenizer.token_bytes(token_id)

    def text_of(self, token_id: int) -> str:
        """The token's text; a piece of a character becomes U+FFFD (its `bytes` are exact)."""
        if token_id in self._textless:
            return self._tokenizer.token_text(token_id)
        return self._tokenizer.token_bytes(token_id).decode("utf-8", "replace")

    def key_of(self, token_id: int) -> str:
        """Like `text_of`, but distinct for distinct bytes, as OpenAI writes them."""
        raw = self.bytes_of(token_id)
        try:
            return raw.decode() if raw else self.text_of(token_id)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def chat_logprobs(
    names: TokenNames, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
) -> dict[str, object]:
    """One entry per completion token, the end token included."""
    content = [
        _chat_entry(names, token_id, entry.logprob)
        | {"top_logprobs": [_chat_entry(names, *pair) for pair in entry.top]}
        for token_id, entry in zip(token_ids, logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def _chat_entry(names: TokenNames, token_id: int, logprob: float) -> dict[str, object]:
    return {
        "token": names.text_of(token_id),
        "logprob": logprob,
        "bytes": list(names.bytes_of(token_id)),
    }


class CompletionLogprobs:
    """The legacy shape: four parallel lists. Keeps the place in the text between chunks of one
    choice: `text_offset` counts characters, and a token that ends inside one starts at it."""

    def __init__(self, names: TokenNames) -> None:
        self._names = names
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def render(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
    ) -> dict[str, object]:
        names = self._names
        offsets = []
        for token_id in token_ids:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(names.bytes_of(token_id)))
        return {
            "tokens": [names.key_of(token_id) for token_id in token_ids],
            "token_logprobs": [entry.logprob for entry in logprobs],
            "top_logprobs": [
                {names.key_of(other): value for other, value in entry.top}
                | {names.key_of(token_id): entry.logprob}
                for token_id, entry in zip(token_ids, logprobs, strict=True)
            ],
            "text_offset": offsets,
        }
