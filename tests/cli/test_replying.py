"""One reply in the terminal, over the scripted engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from support.fakes import ScriptedEngine
from surefoot.app.offline import Reply, reply_to, sampling, speed_line, trace_of
from surefoot.cli.chat import Conversation
from surefoot.config import SchedulerConfig
from surefoot.core.events import FinishReason
from surefoot.core.request import Request, TextStepper
from surefoot.core.timings import Timings
from surefoot.errors import ContextLengthError, EngineError
from surefoot.runtime.loop import EngineLoop
from surefoot.runtime.mailbox import Mailbox
from surefoot.scheduling.scheduler import Scheduler
from surefoot.speculation.replay.traces import Trace

GREEDY = sampling(0.0, 0, 1.0, seed=1)


class Spelled:
    """Shows every token as its number."""

    stopped = False

    def push(self, token_id: int) -> str:
        return f"{token_id} "

    def finish(self) -> str:
        return "."


class FreeingLoop(EngineLoop):
    """Lets a manual engine run once a cancellation has been noted."""

    def __init__(self, engine: ScriptedEngine) -> None:
        super().__init__(Scheduler(engine, SchedulerConfig(max_rows=1)))
        self._engine = engine

    def cancel(self, request_id: int) -> None:
        super().cancel(request_id)
        self._engine.finish_all()


class ScriptedRunner:
    capacity = 10
    end_ids = frozenset({99})

    def __init__(self, engine: ScriptedEngine) -> None:
        self.loop = FreeingLoop(engine)
        self.mailbox = Mailbox(self.loop)
        self.loop.start()

    def make_text(self, stop: Sequence[str]) -> TextStepper:
        return Spelled()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(1, 10, replies={(1, 2): [5, 6, 7, 99], (3,): [4] * 20})


@pytest.fixture
def runner(engine: ScriptedEngine) -> Iterator[ScriptedRunner]:
    runner = ScriptedRunner(engine)
    yield runner
    engine.close()
    assert runner.loop.shutdown(drain=False, timeout=30)


def test_text_is_written_as_it_comes_and_returned_whole(runner: ScriptedRunner) -> None:
    written: list[str] = []
    reply = reply_to(runner, [1, 2], GREEDY, max_tokens=None, write=written.append)
    assert "".join(written) == reply.text
    assert reply.text.startswith("5 6 7 ")
    assert len(written) > 3
    assert (reply.request.prompt_ids, reply.token_ids) == ((1, 2), (5, 6, 7, 99))
    assert reply.reason is FinishReason.STOP


@pytest.mark.parametrize(("asked", "given"), [(3, 3), (None, 9), (100, 9)])
def test_a_reply_ends_with_its_limit_or_the_context(
    runner: ScriptedRunner, asked: int | None, given: int
) -> None:
    reply = reply_to(runner, [3], GREEDY, max_tokens=asked, write=str)
    assert reply.token_ids == (4,) * given
    assert reply.reason is FinishReason.LENGTH


def test_a_prompt_without_room_is_refused_with_both_numbers(runner: ScriptedRunner) -> None:
    with pytest.raises(ContextLengthError, match="the prompt holds 10 tokens, the context 10"):
        reply_to(runner, [3] * 10, GREEDY, max_tokens=1, write=str)


def test_what_a_row_fails_with_is_raised(engine: ScriptedEngine, runner: ScriptedRunner) -> None:
    engine.fault = lambda plan, row: "the forward failed"
    with pytest.raises(EngineError, match="the forward failed"):
        reply_to(runner, [3], GREEDY, max_tokens=4, write=str)


def test_ctrl_c_ends_the_reply_and_keeps_what_was_said(
    engine: ScriptedEngine, runner: ScriptedRunner
) -> None:
    engine.manual = True
    threading.Thread(target=engine.finish_step).start()  # the first token, and no other
    interrupts = iter([KeyboardInterrupt])

    def interrupted_once(text: str) -> None:
        for interrupt in interrupts:
            raise interrupt

    reply = reply_to(runner, [3], GREEDY, max_tokens=9, write=interrupted_once)
    assert reply.reason is FinishReason.CANCELLED
    assert 1 <= len(reply.token_ids) <= 3
    assert reply.text == "4 " * len(reply.token_ids) + "."


def test_a_seed_is_drawn_only_when_none_is_given() -> None:
    assert sampling(0.8, 0, 1.0, seed=7) == sampling(0.8, 0, 1.0, seed=7)
    assert sampling(0.8, 0, 1.0, seed=None) != sampling(0.8, 0, 1.0, seed=None)


def test_the_speed_line_and_the_trace() -> None:
    request = Request(1, (1, 2), 9, GREEDY, Spelled(), end_ids=frozenset({4}))
    reply = Reply(request, (3, 4), "x", FinishReason.STOP, Timings(2, 10.0, 2, 40.0))
    assert speed_line(reply) == (
        "prompt: 2 tokens, 200.0 tokens/s; reply: 2 tokens, 50.0 tokens/s (stop)"
    )
    again = replace(reply, timings=Timings(2, 10.0, 2, 40.0, cache_n=16))
    assert speed_line(again).startswith("prompt: 18 tokens (16 known), 200.0 tokens/s; reply: 2")
    assert trace_of(reply, 10) == Trace((1, 2), (3, 4), 9, frozenset({4}), 10)


def one_token_a_message(messages: Sequence[dict[str, str]]) -> list[int]:
    return [len(message["content"]) for message in messages]


def test_a_conversation_holds_system_message_and_turns() -> None:
    conversation = Conversation(one_token_a_message, 100, "four")
    assert conversation.ask("a") == [4, 1]
    conversation.answered("xyz")
    assert conversation.ask("ab") == [4, 1, 3, 2]
    conversation.take_back()
    assert conversation.ask("abcde") == [4, 1, 3, 5]
    conversation.reset()
    assert conversation.ask("a") == [4, 1]


def test_the_oldest_turns_are_forgotten_first(capsys: pytest.CaptureFixture[str]) -> None:
    conversation = Conversation(one_token_a_message, 4, None)
    assert conversation.ask("a") == [1]
    conversation.answered("ab")
    assert conversation.ask("abc") == [1, 2, 3]
    conversation.answered("abcd")
    assert conversation.ask("abcde") == [3, 4, 5]
    assert capsys.readouterr().err == "(the context is full: the oldest turn is forgotten)\n"
