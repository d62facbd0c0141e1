"""What the runtime gets for what a client asked."""

from __future__ import annotations

from typing import Any

import pytest

from support.server_fakes import END, OTHER_SPECIAL, FakeStream, Harness, say
from surefoot.core.request import Request, SamplingParams
from surefoot.server.limits import RequestLimits, ServerConfig

PROMPT = b"user:hi;>"


def asked(**body: Any) -> Request:
    """The one row of a chat with these fields."""
    harness = Harness(say("OK"))
    reply = harness.chat(**body)
    assert reply.status_code == 200, reply.text
    (request,) = harness.sink.requests
    return request


def test_the_defaults() -> None:
    request = asked(seed=5)
    assert request.prompt_ids == tuple(PROMPT)
    assert request.max_tokens == 200 - len(PROMPT)
    assert request.sampling == SamplingParams(seed=5)
    assert request.end_ids == {END}
    assert (request.speculation, request.priority, request.cache_salt) == (True, 0, "")


def test_every_sampling_field_arrives() -> None:
    request = asked(
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=3,
        logit_bias={"5": -100, "257": 1.5},
        logprobs=True,
        top_logprobs=4,
    )
    assert request.sampling == SamplingParams(
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        seed=3,
        logit_bias=((5, -100.0), (257, 1.5)),
        logprobs=4,
    )


def test_the_rest_arrives() -> None:
    request = asked(
        ignore_eos=True,
        max_tokens=3,
        stop_token_ids=[65],
        speculation=False,
        priority=-3,
        cache_salt="me",
    )
    assert request.end_ids == {65}
    assert (request.speculation, request.priority, request.cache_salt) == (False, -3, "me")
    assert asked(stop_token_ids=[65]).end_ids == {65, END}


@pytest.mark.parametrize(
    ("temperature", "kept"), [(0, 0.0), (1e-12, 0.0), (1e-6, 0.0), (1e-4, 1e-4), (2, 2.0)]
)
def test_tiny_temperatures_are_zero(temperature: float, kept: float) -> None:
    assert asked(temperature=temperature).sampling.temperature == kept


@pytest.mark.parametrize(
    ("seed", "kept"),
    [(0, 0), (-1, 2**64 - 1), (2**64 + 3, 3), (10**300, 10**300 % 2**64), (42.0, 42)],
)
def test_any_integer_is_a_seed(seed: float, kept: int) -> None:
    assert asked(seed=seed).sampling.seed == kept


def test_no_seed_is_a_fresh_one() -> None:
    assert asked().sampling.seed != asked().sampling.seed


def test_choices_share_the_seed_and_differ_in_their_number() -> None:
    harness = Harness(say("OK"))
    harness.complete(prompt=["a", "b"], n=2)
    numbers = [(r.prompt_ids, r.sampling.choice) for r in harness.sink.requests]
    assert numbers == [((97,), 0), ((97,), 1), ((98,), 0), ((98,), 1)]
    assert len({r.sampling.seed for r in harness.sink.requests}) == 1
    assert len({r.request_id for r in harness.sink.requests}) == 4


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 16.0}, 16),
        ({"max_completion_tokens": 5}, 5),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 5),
        ({"max_tokens": 1_000_000}, 191),
        ({}, 191),
    ],
)
def test_max_tokens_of_a_chat(given: dict[str, Any], kept: int) -> None:
    assert asked(**given).max_tokens == kept


def test_max_tokens_of_a_completion() -> None:
    harness = Harness(say("OK"))
    harness.complete()
    harness.complete(max_tokens=None)
    harness.complete(max_tokens=1000)
    assert [r.max_tokens for r in harness.sink.requests] == [16, 16, 198]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("length", "status"), [(198, 200), (199, 200), (200, 400), (5000, 400)])
def test_a_prompt_must_leave_room(length: int, status: int, stream: bool) -> None:
    harness = Harness(lambda row: row.emit(*b"a" * 16))
    reply = harness.complete(prompt="x" * length, stream=stream)
    assert reply.status_code == status
    if status == 200:
        assert harness.sink.requests[0].max_tokens == min(16, 200 - length)
        return
    error = reply.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert error["param"] == "prompt"
    assert "200 tokens" in error["message"]
    assert f" {length} " in error["message"]


def test_a_chat_that_does_not_fit_or_is_empty_names_messages() -> None:
    long = [{"role": "user", "content": "x" * 300}]
    reply = Harness().post("/v1/chat/completions", {"messages": long})
    assert reply.json()["error"]["param"] == "messages"
    empty = Harness(encode_chat=lambda messages: []).chat().json()["error"]
    assert (empty["param"], empty["message"]) == ("messages", "the prompt holds no token")


def test_the_prompt_limit_of_the_server() -> None:
    limits = RequestLimits(max_prompt_tokens=10)
    harness = Harness(say("OK"), ServerConfig(request=limits))
    assert harness.complete(prompt="x" * 10).status_code == 200
    reply = harness.complete(prompt="x" * 11)
    assert reply.json()["error"]["code"] == "context_length_exceeded"


def test_special_text_is_special_in_prompts_and_plain_in_messages() -> None:
    harness = Harness(say("OK"))
    harness.complete(prompt="a<|end|>")
    messages = [{"role": "user", "content": "a<|end|>"}]
    harness.post("/v1/chat/completions", {"messages": messages})
    prompt, chat = harness.sink.requests
    assert prompt.prompt_ids == (97, END)
    assert chat.prompt_ids == tuple(b"user:a<|end|>;>")


def test_text_parts_are_joined_and_an_empty_message_is_fine() -> None:
    harness = Harness(say("OK"))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for content in (parts, [], ""):
        messages = [{"role": "user", "content": content}]
        assert harness.post("/v1/chat/completions", {"messages": messages}).status_code == 200
    assert [bytes(r.prompt_ids) for r in harness.sink.requests] == [
        b"user:ab;>",
        b"user:;>",
        b"user:;>",
    ]


def test_token_ids_are_taken_as_they_are() -> None:
    harness = Harness(say("OK"))
    harness.complete(prompt=[1, END, OTHER_SPECIAL])
    harness.complete(prompt=[[1], [2]])
    assert [r.prompt_ids for r in harness.sink.requests] == [
        (1, END, OTHER_SPECIAL),
        (1,),
        (2,),
    ]


def test_stop_strings_reach_the_text() -> None:
    def run(stream: FakeStream) -> None:
        stream.emit(*b"one two three")

    choice = Harness(run).complete(stop=["three", " two"]).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("one", "stop")


@pytest.mark.parametrize("name", ["tiny", "small", None])
def test_names_that_are_served(name: str | None) -> None:
    assert Harness(say("OK")).chat(model=name).json()["model"] == "tiny"


@pytest.mark.parametrize("name", ["", "other", "../../etc/passwd", "tiny "])
def test_names_that_are_not(name: str) -> None:
    reply = Harness(say("OK")).chat(model=name)
    assert reply.status_code == 404
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_a_model_without_chat_template_completes_only() -> None:
    harness = Harness(say("OK"), encode_chat=None)
    assert harness.complete().status_code == 200
    error = harness.chat().json()["error"]
    assert "no chat template" in error["message"]
