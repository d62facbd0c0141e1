"""`surefoot generate`: one prompt, one reply."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli import options as flags
from surefoot.cli.console import say
from surefoot.cli.lookup_flags import (
    DraftMax,
    DraftPolicyName,
    NgramMax,
    NgramMin,
    WatchedLookup,
    lookup_config,
)
from surefoot.cli.replying import reply_to, sampling, speed_line, trace_of
from surefoot.config import SchedulerConfig
from surefoot.core.events import FinishReason
from surefoot.speculation.traces import write_traces

if TYPE_CHECKING:
    from surefoot.cli.assembly import Stack


def generate(
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="'-' reads it from stdin.")],
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", help="Tokens of the reply at most.", min=1)
    ] = 256,
    temperature: flags.Temperature = 0.0,
    top_k: flags.TopK = 0,
    top_p: flags.TopP = 1.0,
    seed: flags.Seed = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text.")] = None,
    system: flags.System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text; no chat template.")
    ] = False,
    model: flags.Model = "default",
    context: flags.Context = None,
    threads: flags.Threads = None,
    deterministic: flags.Deterministic = False,
    pre_tokenizer: flags.PreTokenizer = None,
    prompt_lookup: Annotated[
        bool, typer.Option("--prompt-lookup", help="Draft tokens from the context.")
    ] = False,
    policy: DraftPolicyName = None,
    draft_max: DraftMax = 7,
    ngram_min: NgramMin = 2,
    ngram_max: NgramMax = 3,
    record_to: Annotated[
        Path | None, typer.Option("--record", help="Append the reply's trace to this file.")
    ] = None,
) -> None:
    """Write a reply to stdout as it is made, and its speed to stderr."""
    text = sys.stdin.read() if prompt == "-" else prompt
    lookup = None
    if prompt_lookup:
        lookup = WatchedLookup(lookup_config(policy, draft_max, ngram_min, ngram_max))
    run = flags.RunOptions(model, context, threads, deterministic, pre_tokenizer)
    with running(run, lookup) as stack:
        reply = reply_to(
            stack,
            stack.encode_text(text) if raw else stack.encode_chat(one_turn(system, text)),
            sampling(temperature, top_k, top_p, seed),
            max_tokens=max_tokens,
            stop=stop or (),
            write=_write,
        )
        trace = trace_of(reply, stack.capacity)
    if not reply.text.endswith("\n"):
        _write("\n")
    if record_to is not None:
        write_traces([trace], record_to, append=True)
    say(speed_line(reply))
    if lookup is not None:
        say(lookup.summary_line(len(reply.token_ids)))
    if reply.reason is FinishReason.CANCELLED:
        raise typer.Exit(130)


@contextmanager
def running(run: flags.RunOptions, lookup: WatchedLookup | None = None) -> Iterator[Stack]:
    """A stack for one row at a time, closed at the end."""
    from surefoot.cli.assembly import build_stack

    make = None if lookup is None else lookup.scheduler_part
    stack = build_stack(run, SchedulerConfig(max_rows=1), make)
    try:
        yield stack
    finally:
        stack.close()


def one_turn(system: str | None, text: str) -> list[dict[str, str]]:
    """The messages of a conversation that begins with `text`."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": text}]


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
