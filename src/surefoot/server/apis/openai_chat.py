"""The form of a chat choice: `message` and `delta`."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.core.request import TokenLogprobs
from surefoot.server.generation import Json
from surefoot.server.logprobs import TokenNames, chat_logprobs
from surefoot.server.state import Tokenizer

ID_PREFIX = "chatcmpl-"


class ChatFormat:
    """A `ChoiceFormat` for `/v1/chat/completions`."""

    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._names = TokenNames(tokenizer)

    def opening(self, index: int) -> Json:
        return _chunk(index, {"role": "assistant", "content": ""})

    def delta(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None,
    ) -> Json:
        choice = _chunk(index, {"content": text})
        choice["logprobs"] = self._logprobs(token_ids, logprobs)
        return choice

    def ending(self, index: int, reason: str) -> Json:
        return _chunk(index, {}) | {"finish_reason": reason}

    def whole(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None,
        reason: str,
    ) -> Json:
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(token_ids, logprobs),
            "finish_reason": reason,
        }

    def _logprobs(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None
    ) -> Json | None:
        return None if logprobs is None else chat_logprobs(self._names, token_ids, logprobs)


def _chunk(index: int, delta: Json) -> Json:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
