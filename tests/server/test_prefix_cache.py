"""Prefix reuse as a client sees it: the whole server over a tiny model, with and without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.tiny_models import text_model
from surefoot.app.kv_plan import StorageBackend, StorageOptions
from surefoot.app.options import RunOptions
from surefoot.app.serve_options import Serving
from surefoot.app.serving import served_model
from surefoot.app.stack import Stack, build_stack
from surefoot.config import SchedulerConfig
from surefoot.server.app import create_app
from surefoot.server.limits import ServerConfig
from surefoot.server.state import ServerState

TIMEOUT_S = 60.0
SYSTEM = "You are a careful assistant who answers in one short line. " * 5
CHAT = "/v1/chat/completions"


class Server:
    """The application over a real stack; one request at a time."""

    def __init__(self, stack: Stack, serving: Serving) -> None:
        state = ServerState()
        state.set_ready(served_model(stack, serving, None))
        self._app = create_app(state, serving.server)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        return asyncio.run(self._post([(path, body)]))[0]

    def post_all(self, path: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All at once; the replies in order."""
        return asyncio.run(self._post([(path, body) for body in bodies]))

    async def _post(self, asks: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        transport = httpx.ASGITransport(app=self._app)
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            defaults = {"temperature": 0, "max_tokens": 12}
            replies = await asyncio.gather(
                *(client.post(path, json=defaults | body) for path, body in asks)
            )
        assert [reply.status_code for reply in replies] == [200] * len(replies)
        return [reply.json() for reply in replies]

    def chat(self, *messages: tuple[str, str], **body: Any) -> dict[str, Any]:
        turns = [{"role": role, "content": content} for role, content in messages]
        return self.post(CHAT, messages=turns, **body)


def text_of(reply: dict[str, Any]) -> str:
    text: str = reply["choices"][0]["message"]["content"]
    return text


def cached(reply: dict[str, Any]) -> int:
    count: int = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert reply["timings"]["cache_n"] == count
    assert reply["timings"]["prompt_n"] + count == reply["usage"]["prompt_tokens"]
    return count


def running(gguf: Path, *, prompt_cache: bool) -> Iterator[Server]:
    options = RunOptions(str(gguf), threads=1, deterministic=True)
    scheduling = SchedulerConfig(max_rows=2)
    storage = StorageOptions(StorageBackend.PAGED, "none", prompt_cache)
    stack = build_stack(options, scheduling, None, storage)
    yield Server(stack, Serving(ServerConfig(), options, scheduling, storage=storage))
    stack.close()


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUREFOOT_HOME", str(home))
        yield text_model().write(home / "tiny.gguf")


@pytest.fixture(scope="module")
def plain(gguf: Path) -> Iterator[Server]:
    """A server that remembers nothing: fresh for every request."""
    yield from running(gguf, prompt_cache=False)


@pytest.fixture
def server(gguf: Path) -> Iterator[Server]:
    yield from running(gguf, prompt_cache=True)


def test_one_chat_never_shows_in_another(server: Server, plain: Server) -> None:
    for word in ("BANANA", "CHERRY", "WALNUT", "GINGER", "PEPPER"):
        for ask in (f"Remember the word {word}", "hi", "What did I say before this?"):
            turns = (("system", SYSTEM), ("user", ask))
            reply, fresh = server.chat(*turns), plain.chat(*turns)
            assert text_of(reply) == text_of(fresh)
            assert reply["usage"]["completion_tokens"] == fresh["usage"]["completion_tokens"]
            assert cached(fresh) == 0
    assert cached(server.chat(("system", SYSTEM), ("user", "one more"))) >= len(SYSTEM) // 16 * 16


def test_a_long_prompt_three_times_gives_the_same_text_and_log_probabilities(
    server: Server, plain: Server
) -> None:
    body = {"prompt": "Some words that go on. " * 30, "max_tokens": 16, "seed": 0, "logprobs": 2}
    replies = [server.post("/v1/completions", **body) for _ in range(3)]
    assert [cached(reply) > 0 for reply in replies] == [False, True, True]
    for reply in (*replies, plain.post("/v1/completions", **body)):
        assert reply["choices"] == replies[0]["choices"]


def test_prompts_that_differ_early_share_nothing(server: Server, plain: Server) -> None:
    for number in range(6):
        body = {"prompt": f"{number} " + "and the rest is the same for all of them " * 4}
        reply = server.post("/v1/completions", **body)
        assert cached(reply) == 0
        assert reply["choices"] == plain.post("/v1/completions", **body)["choices"]


def test_a_chat_reads_only_what_is_new_from_its_second_turn_on(
    server: Server, plain: Server
) -> None:
    turns = [("system", SYSTEM), ("user", "A long first message. " * 12)]
    previous = 0
    for turn in range(5):
        reply = server.chat(*turns)
        assert text_of(reply) == text_of(plain.chat(*turns))
        # A block may also hold a few of the new tokens, so the last whole one of the old prompt.
        assert cached(reply) >= (previous - 1) // 16 * 16
        assert cached(reply) > 0 or turn == 0
        previous = reply["usage"]["prompt_tokens"]
        turns += [("assistant", text_of(reply) + "\n\n"), ("user", f" question {turn} ")]


def test_salts_keep_tenants_apart(server: Server) -> None:
    turns = (("system", SYSTEM), ("user", "hi"))
    known = [
        cached(server.chat(*turns, **extra))
        for extra in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "a"}, {})
    ]
    assert [count > 0 for count in known] == [False, False, False, True, True]


def test_many_at_once_get_the_texts_they_get_alone(server: Server, plain: Server) -> None:
    bodies = [
        {"messages": [{"role": "user", "content": f"{SYSTEM} {number % 3}"}], "max_tokens": 20}
        for number in range(9)
    ]
    together = server.post_all(CHAT, bodies)
    assert [text_of(reply) for reply in together] == [
        text_of(plain.post(CHAT, **body)) for body in bodies
    ]


def test_usage_counts_the_cached_prompt_of_several_choices_once(server: Server) -> None:
    turns = (("system", SYSTEM), ("user", "hi"))
    first = server.chat(*turns)
    reply = server.chat(*turns, n=2, temperature=1.0, seed=3)
    usage = reply["usage"]
    assert usage["prompt_tokens"] == first["usage"]["prompt_tokens"]
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
