"""`surefoot generate`: one prompt, one reply."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli import options as flags
from surefoot.cli.console import say
from surefoot.cli.lookup_flags import (
    DraftMax,
    DraftPolicyName,
    NgramMax,
    NgramMin,
    lookup_config,
)
from surefoot.cli.replying import Reply, record, reply_to, sampling, speed_line
from surefoot.core.events import FinishReason


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
    from surefoot.cli.assembly import build_stack
    from surefoot.cli.lookup_flags import WatchedLookup
    from surefoot.config import SchedulerConfig

    text = sys.stdin.read() if prompt == "-" else prompt
    params = sampling(temperature, top_k, top_p, seed)
    lookup = None
    if prompt_lookup:
        lookup = WatchedLookup(lookup_config(policy, draft_max, ngram_min, ngram_max))
    stack = build_stack(
        flags.RunOptions(model, context, threads, deterministic),
        SchedulerConfig(max_rows=1),
        lookup.scheduler_part if lookup else None,
    )
    try:
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": text})
        reply = reply_to(
            stack,
            stack.encode_text(text) if raw else stack.encode_chat(messages),
            params,
            max_tokens=max_tokens,
            stop=stop or (),
            write=_write,
        )
    finally:
        stack.close()
    _report(reply, record_to)
    if lookup:
        say(lookup.summary_line(len(reply.token_ids)))
    if reply.reason is FinishReason.CANCELLED:
        raise typer.Exit(130)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _report(reply: Reply, record_to: Path | None) -> None:
    if not reply.text.endswith("\n"):
        _write("\n")
    if record_to is not None:
        record(reply, record_to)
    say(speed_line(reply))
