"""The `openai` client over a real socket, through the real loop and scheduler on a scripted
engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from support.fakes import ScriptedEngine
from support.live_server import LiveLoop, looping
from support.server_fakes import END, TOKENIZER, encode_chat

GREETING = "Grüße, 漢字 and 👩‍👩‍👧‍👦!"
MESSAGES: Any = [{"role": "user", "content": "Say hello."}]


def script(prompt: str, reply: str) -> dict[tuple[int, ...], list[int]]:
    ids = tuple(TOKENIZER.encode(prompt, parse_special=False, add_bos=False))
    return {ids: [*reply.encode(), END]}


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLoop]:
    replies = {tuple(encode_chat(MESSAGES)): [*GREETING.encode(), END]}
    replies |= script("The sky is", " blue.") | script("Two plus two is", " four.")
    with looping(ScriptedEngine(4, 400, vocab=128, replies=replies)) as running:
        yield running


@pytest.fixture
def client(live: LiveLoop) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as connected:
        yield connected


def test_a_whole_chat_reply(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0)
    choice = reply.choices[0]
    assert choice.message.content == GREETING
    assert (choice.message.role, choice.finish_reason, choice.index) == ("assistant", "stop", 0)
    assert reply.usage is not None
    num_tokens = len(GREETING.encode()) + 1
    assert reply.usage.completion_tokens == num_tokens
    assert reply.usage.prompt_tokens == len(encode_chat(MESSAGES))
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + num_tokens


def test_a_streamed_chat_reply_is_the_whole_one_in_pieces(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert len({(c.id, c.model, c.created, c.object) for c in chunks}) == 1
    *deltas, ending, usage = chunks
    assert [c.choices[0].delta.role for c in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    pieces = [c.choices[0].delta.content or "" for c in deltas]
    assert "".join(pieces) == GREETING
    assert "\ufffd" not in "".join(pieces)
    assert {c.choices[0].finish_reason for c in deltas} == {None}
    assert ending.choices[0].finish_reason == "stop"
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == len(GREETING.encode()) + 1


def test_prompts_in_a_list_answer_in_order_as_alone(client: openai.OpenAI) -> None:
    prompts = ["The sky is", "Two plus two is"]
    reply = client.completions.create(model="tiny", prompt=prompts, temperature=0, max_tokens=9)
    assert [(c.index, c.text) for c in reply.choices] == [(0, " blue."), (1, " four.")]
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == sum(len(prompt) for prompt in prompts)
    assert reply.usage.completion_tokens == len(" blue.") + len(" four.") + 2


def test_choices_differ_and_a_seed_repeats_them(client: openai.OpenAI) -> None:
    def texts(seed: int) -> list[str]:
        reply = client.completions.create(
            model="tiny", prompt="any", n=4, seed=seed, temperature=1.0, max_tokens=12
        )
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        return [choice.text for choice in reply.choices]

    first = texts(7)
    assert len(set(first)) == 4
    assert texts(7) == first
    assert texts(8) != first


def test_a_stop_string_over_several_tokens(client: openai.OpenAI) -> None:
    for stream in (False, True):
        reply: Any = client.chat.completions.create(
            model="tiny", messages=MESSAGES, temperature=0, stop=["字 an"], stream=stream
        )
        if stream:
            chunks = list(reply)
            text = "".join(c.choices[0].delta.content or "" for c in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            text, reason = reply.choices[0].message.content, reply.choices[0].finish_reason
        assert (text, reason) == ("Grüße, 漢", "stop")


def test_errors_are_the_clients_own_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="other", messages=MESSAGES)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="tiny", prompt="x" * 400, stream=True)
    assert long.value.code == "context_length_exceeded"
    assert client.models.list().data[0].id == "tiny"


def test_eight_at_once_with_half_leaving(live: LiveLoop) -> None:
    """Those that stay get what they get alone; those that leave free their rows."""

    async def ask(client: openai.AsyncOpenAI, index: int) -> str:
        stream = await client.completions.create(
            model="tiny", prompt=f"prompt {index}", temperature=0, max_tokens=300, stream=True
        )
        texts: list[str] = []
        async for chunk in stream:
            texts.append(chunk.choices[0].text)
            if index % 2 and len(texts) == 3:
                await stream.close()
                break
        return "".join(texts)

    async def run() -> tuple[list[str], list[str]]:
        async with openai.AsyncOpenAI(base_url=live.url + "/v1", api_key="none") as client:
            together = await asyncio.gather(*(ask(client, index) for index in range(8)))
            alone = [await ask(client, index) for index in range(0, 8, 2)]
        return together, alone

    together, alone = asyncio.run(run())
    assert together[::2] == alone
    assert all(alone)
