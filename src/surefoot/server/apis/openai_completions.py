"""The form of a completion choice: `text`, and the legacy logprobs."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.core.request import TokenLogprobs
from surefoot.server.generation import Json
from surefoot.server.logprobs import CompletionLogprobs, TokenNames
from surefoot.server.state import Tokenizer

ID_PREFIX = "cmpl-"


class CompletionFormat:
    """A `ChoiceFormat` for `/v1/completions`, for one reply. `echo`: text that opens each
    choice (in a whole reply it is part of the text already)."""

    object_name = "text_completion"
    chunk_name = "text_completion"

    def __init__(self, tokenizer: Tokenizer, echo: Sequence[str]) -> None:
        names = TokenNames(tokenizer)
        self._echo = echo
        self._logprobs = [CompletionLogprobs(names) for _ in echo]

    def opening(self, index: int) -> Json | None:
        echo = self._echo[index]
        return self.delta(index, echo, (), None) if echo else None

    def delta(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None,
    ) -> Json:
        writer = self._logprobs[index]
        return {
            "index": index,
            "text": text,
            "logprobs": None if logprobs is None else writer.render(token_ids, logprobs),
            "finish_reason": None,
        }

    def ending(self, index: int, reason: str) -> Json:
        return self.delta(index, "", (), None) | {"finish_reason": reason}

    def whole(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None,
        reason: str,
    ) -> Json:
        return self.delta(index, text, token_ids, logprobs) | {"finish_reason": reason}
