"""Asking real servers (with a scripted engine) and what is made of their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from harness import acceptance
from harness.arms import OFF, OFF_AGAIN, ON, told_to_be_off
from harness.asking import Answer, Ask, Asker
from harness.client import Body, Endpoint, HttpError, NotReadyError, chat_body
from harness.comparison import Rate
from harness.load import Load, latency_of, run_load
from harness.runs import RunFolder
from harness.sse import Reply
from harness.workloads import Item
from support.benchmark_fakes import CountingEngine, arm, reply, served


def item(name: str, max_tokens: int = 12) -> Item:
    return Item(name, ({"role": "user", "content": f"say {name}"},), max_tokens)


def test_a_reply_is_streamed_over_http() -> None:
    with served(CountingEngine()) as endpoint:
        reply = endpoint.stream_chat(chat_body(item("x").messages, 3, {"temperature": 0}))
    assert (reply.text, reply.tokens, reply.prompt_tokens) == ("0 1 2 ", 3, len("say x"))
    assert reply.finish_reason == "length"
    assert 0.0 < reply.first_s <= reply.last_s


def test_half_a_character_is_held_back() -> None:
    engine = CountingEngine([b"a", "é".encode()[:1], "é".encode()[1:], b"b"])
    with served(engine) as endpoint:
        reply = endpoint.stream_chat(chat_body(item("x").messages, 4, {}))
    assert (reply.text, reply.tokens) == ("aéb", 4)


def test_a_server_that_is_not_there_is_not_waited_for_when_it_has_ended() -> None:
    with served(CountingEngine()) as endpoint:
        endpoint.wait_ready(5.0, lambda: True)
        assert endpoint.get("/health")["version"] == "scripted 1"
    with pytest.raises(NotReadyError, match="ended"):
        endpoint.wait_ready(5.0, lambda: False)
    with pytest.raises(NotReadyError, match="not ready"):
        endpoint.wait_ready(0.0, lambda: True)


def test_each_block_asks_every_arm_once_and_off_twice(tmp_path: Path) -> None:
    folder, engines = RunFolder(tmp_path, "run"), (CountingEngine(), CountingEngine())
    with served(engines[0]) as on, served(engines[1]) as off:
        asker = Asker([arm(ON, on), arm(OFF, off)], folder, seed=1, pause_s=0.0)
        answer = asker.answer(Ask("plain", "a", 0, (item("a"),)))
    assert list(answer.replies) == [ON, OFF, OFF_AGAIN]
    assert [len(engine.prompts) for engine in engines] == [1, 2]
    raw = [json.loads(line) for line in (folder.path / "raw.jsonl").read_text().splitlines()]
    assert sorted(record["arm"] for record in raw) == [OFF, OFF_AGAIN, ON]
    assert [record["place"] for record in raw] == [0, 1, 2]
    assert raw[0]["reply"]["tokens"] == 12


def test_arms_can_be_left_out_and_orders_differ(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "run")
    with served(CountingEngine()) as endpoint:
        arms = [arm(name, endpoint) for name in (ON, OFF, "extra")]
        asker = Asker(arms, folder, seed=0, pause_s=0.0)
        for number in range(12):
            answer = asker.answer(Ask("plain", "a", number, (item("a"),)), skip=["extra"])
            assert "extra" not in answer.replies
    raw = [json.loads(line) for line in (folder.path / "raw.jsonl").read_text().splitlines()]
    orders = {tuple(r["arm"] for r in raw[i : i + 3]) for i in range(0, len(raw), 3)}
    assert len(orders) > 2


class NotingEndpoint(Endpoint):
    """Keeps what it was asked."""

    bodies: ClassVar[list[Body]] = []

    def stream_chat(self, body: Body) -> Reply:
        self.bodies.append(body)
        return super().stream_chat(body)


def test_the_off_arm_of_one_process_is_the_on_server_told_not_to_speculate(tmp_path: Path) -> None:
    with served(CountingEngine()) as endpoint:
        on = arm(ON, NotingEndpoint(endpoint.url))
        off = told_to_be_off(on)
        assert (off.name, off.endpoint) == (OFF, on.endpoint)
        asker = Asker([on, off], RunFolder(tmp_path, "run"), seed=0, pause_s=0.0)
        asker.answer(Ask("plain", "a", 0, (item("a"),)))
    told = [str(body.get("speculation")) for body in NotingEndpoint.bodies]
    assert sorted(told) == ["False", "False", "None"]


def test_parallel_streams_come_back_in_the_order_of_the_items(tmp_path: Path) -> None:
    with served(CountingEngine()) as endpoint:
        arms = [arm(ON, endpoint), arm(OFF, endpoint)]
        asker = Asker(arms, RunFolder(tmp_path, "run"), seed=0, pause_s=0.0)
        ask = Ask("two", "a + b", 0, (item("a", 9), item("long name", 11)))
        replies = asker.answer(ask).replies[ON]
    assert [reply.tokens for reply in replies] == [9, 11]


def test_a_block_is_timed_by_server_or_client() -> None:
    replies = {OFF: (reply(tokens=101, decode_s=2.0),), ON: (reply(tokens=101, decode_s=1.0),)}
    answer = Answer(Ask("plain", "a", 0, (item("a"),)), replies)
    server, client = answer.block("server"), answer.block("client")
    assert server is not None
    assert client is not None
    assert server.arms[OFF] == Rate(101, 2.0)
    assert client.arms[OFF] == Rate(100, 2.0)
    assert server.ratio(OFF, ON) == 2.0


def test_short_replies_make_no_block() -> None:
    replies = {OFF: (reply(tokens=7),), ON: (reply(tokens=100),)}
    assert Answer(Ask("plain", "a", 0, (item("a"),)), replies).block("server") is None


def test_parallel_streams_are_timed_from_first_to_last() -> None:
    pair = (reply(tokens=50, decode_s=2.0, first_s=0.5), reply(tokens=31, decode_s=1.0, first_s=1))
    answer = Answer(Ask("two", "a + b", 0, (item("a"), item("b"))), {OFF: pair, ON: pair})
    block, alone = answer.block("server"), answer.stream_block(1, "server")
    assert block is not None
    assert alone is not None
    assert block.arms[OFF] == Rate(80, 2.0)
    assert alone.arms[OFF] == Rate(31, 1.0)


def test_every_question_comes_once_a_round_and_seeds_change_with_it() -> None:
    amount = acceptance.Amount(rounds=6, items=3, max_tokens=40)
    asks = acceptance.asks_of(acceptance.PLAIN_SAMPLED, amount, [], seed=0)
    assert len(asks) == 18
    for number in range(6):
        group = [ask for ask in asks if ask.round == number]
        assert {ask.question for ask in group} == {"rainbow", "rent", "bread"}
        assert {ask.variant for ask in group} == {number % 5 + 1}
    assert {ask.items[0].max_tokens for ask in asks} == {40}
    greedy = acceptance.asks_of(acceptance.PLAIN_GREEDY, amount, [], seed=0)
    assert {ask.variant for ask in greedy} == {None}


def test_two_streams_pair_a_plain_and_a_copy_question() -> None:
    amount = acceptance.Amount(rounds=1, items=2)
    asks = acceptance.asks_of(acceptance.TWO_STREAMS, amount, [], seed=0)
    assert {ask.question for ask in asks} == {"rainbow + repeat-prose", "rent + repeat-rules"}


def test_long_prompts_are_cut_by_what_the_server_counts() -> None:
    with served(CountingEngine()) as endpoint:
        amount = acceptance.Amount(rounds=1, targets=(6000,))
        items = acceptance.long_items(amount, arm(ON, endpoint))
    lengths = [len(item.messages[0]["content"]) for item in items]
    assert len(lengths) == 2
    assert all(0.97 * 6000 <= length <= 6000 for length in lengths)


def test_a_load_answers_every_request_in_order() -> None:
    with served(CountingEngine()) as endpoint:
        bodies = [chat_body(item("x").messages, count, {}) for count in (9, 10, 11, 12)]
        load = run_load(endpoint, bodies, concurrency=2)
    assert [reply.tokens for reply in load.replies] == [9, 10, 11, 12]
    assert load.failures == ()
    assert load.rate.tokens == 42


def test_a_failed_request_is_counted_and_named() -> None:
    with served(CountingEngine()) as endpoint:
        pass
    load = run_load(endpoint, [chat_body(item("x").messages, 9, {})], concurrency=1)
    assert load.replies == ()
    assert "Connection" in load.failures[0]
    with pytest.raises(ValueError, match="no request"):
        latency_of([load])


def test_latency_pools_all_loads() -> None:
    loads = [
        Load((reply(decode_s=1.0, first_s=0.1),), (), 2.0),
        Load((reply(decode_s=3.0),), ("x",), 4.0),
    ]
    latency = latency_of(loads)
    assert (latency.requests, latency.failures) == (2, 1)
    assert latency.first_p50 == pytest.approx(300.0)
    assert latency.gap_p50 == pytest.approx(1000.0)
    assert (latency.slowest, latency.fastest) == (33.0, 99.0)


def test_an_http_error_names_its_status() -> None:
    assert str(HttpError(503, "busy")) == "HTTP 503: busy"
