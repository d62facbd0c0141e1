"""A scripted engine behind the peers' own HTTP server, and replies made by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from harness.arms import Arm
from harness.client import Endpoint
from harness.sse import Draft, Reply
from peers.engine import Message
from peers.serving import make_server


class CountingEngine:
    """Writes "0 1 2 ..."; a prompt is as long as its text. `bytes_of` maps a token to bytes."""

    version = "scripted 1"

    def __init__(self, words: Sequence[bytes] = ()) -> None:
        self._words = words
        self.prompts: list[str] = []

    def encode(self, messages: Sequence[Message]) -> list[int]:
        self.prompts.append(messages[-1]["content"])
        return list(range(len(messages[-1]["content"])))

    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> Iterator[list[int]]:
        for token in range(num_tokens):
            yield [token]

    def decode(self, ids: Sequence[int]) -> str:
        words = [self._words[t] if self._words else f"{t} ".encode() for t in ids]
        return b"".join(words).decode("utf-8", "replace")


@contextmanager
def served(engine: CountingEngine) -> Iterator[Endpoint]:
    server = make_server(engine, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def arm(name: str, endpoint: Endpoint) -> Arm:
    return Arm(name, endpoint)


def reply(
    tokens: int = 100,
    decode_s: float = 1.0,
    text: str = "text",
    first_s: float = 0.5,
    draft: Draft | None = None,
    prompt_tokens: int = 20,
) -> Reply:
    """The client sees the last piece `decode_s` after the first."""
    return Reply(
        text=text,
        finish_reason="stop",
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        cached_tokens=0,
        prompt_s=0.4,
        decode_s=decode_s,
        first_s=first_s,
        last_s=first_s + decode_s,
        gaps_s=(decode_s / 2, decode_s / 2),
        draft=draft or Draft(),
    )
