"""`surefoot chat`: a conversation in the terminal, with its history."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from surefoot.app.console import say
from surefoot.app.kv_plan import StorageBackend, StorageOptions
from surefoot.app.offline import Runner, reply_to, sampling, speed_line
from surefoot.app.options import RunOptions
from surefoot.cli.flags import model as flags
from surefoot.cli.generate import running
from surefoot.errors import SurefootError

if TYPE_CHECKING:
    from surefoot.core.request import SamplingParams

HELP = "/reset forgets the conversation, /exit or Ctrl-D ends, Ctrl-C ends a reply."

Message = dict[str, str]

EncodeChat = Callable[[Sequence[Message]], list[int]]
"""Messages to the prompt's ids."""


def chat(
    model: flags.Model = "default",
    system: flags.System = None,
    temperature: flags.Temperature = 0.7,
    top_k: flags.TopK = 0,
    top_p: flags.TopP = 0.95,
    seed: flags.Seed = None,
    context: flags.Context = None,
    threads: flags.Threads = None,
    deterministic: flags.Deterministic = False,
    pre_tokenizer: flags.PreTokenizer = None,
    quantize: flags.QuantizeTo = None,
    chat_template: flags.ChatTemplateFile = None,
) -> None:
    """Talk to a model in the terminal."""
    params = sampling(temperature, top_k, top_p, seed)
    options = RunOptions(
        model, context, threads, deterministic, pre_tokenizer, quantize, chat_template
    )
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (its import is what gives `input` line editing)
    with running(options, storage=StorageOptions(StorageBackend.PAGED)) as stack:
        conversation = Conversation(stack.encode_chat, stack.capacity, system)
        say(f"{stack.model.name}. {HELP}")
        while (line := _read_line()) is not None:
            if line in ("/exit", "/quit"):
                break
            if line == "/reset":
                conversation.reset()
            elif line.startswith("/"):
                say(HELP)
            elif line:
                _turn(stack, conversation, line, params)


class Conversation:
    """The messages so far. The oldest turns are forgotten when the context is full."""

    def __init__(self, encode: EncodeChat, capacity: int, system: str | None) -> None:
        self._encode = encode
        self._limit = capacity * 3 // 4
        self._opening: list[Message] = []
        if system is not None:
            self._opening.append({"role": "system", "content": system})
        self._turns: list[Message] = []

    def reset(self) -> None:
        self._turns.clear()

    def ask(self, text: str) -> list[int]:
        """Add the user's message; the prompt, a quarter of the context left for the reply."""
        self._turns.append({"role": "user", "content": text})
        while True:
            prompt_ids = self._encode([*self._opening, *self._turns])
            if len(prompt_ids) <= self._limit or len(self._turns) <= 1:
                return prompt_ids
            del self._turns[:2]
            say("(the context is full: the oldest turn is forgotten)")

    def answered(self, text: str) -> None:
        self._turns.append({"role": "assistant", "content": text})

    def take_back(self) -> None:
        """The last message got no answer."""
        self._turns.pop()


def _turn(runner: Runner, conversation: Conversation, line: str, params: SamplingParams) -> None:
    try:
        prompt_ids = conversation.ask(line)
        reply = reply_to(runner, prompt_ids, params, max_tokens=None, write=_write)
    except SurefootError as error:
        conversation.take_back()
        say(f"error: {error.message}")
        return
    _write("\n")
    conversation.answered(reply.text)
    say(speed_line(reply))


def _read_line() -> str | None:
    """The user's next line; None at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
