"""`surefoot generate`: one prompt, one reply."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.app.console import say
from surefoot.app.generate_lookup import WatchedLookup, lookup_config
from surefoot.app.offline import reply_to, sampling, speed_line, trace_of
from surefoot.app.options import RunOptions
from surefoot.cli.flags import model as flags
from surefoot.cli.flags.lookup import DraftMax, DraftPolicyName, NgramMax, NgramMin
from surefoot.config import SchedulerConfig
from surefoot.core.events import FinishReason
from surefoot.errors import ConfigError, ParityError
from surefoot.speculation.config import DraftPolicy
from surefoot.speculation.replay.traces import write_traces

if TYPE_CHECKING:
    from surefoot.app.kv_plan import StorageOptions
    from surefoot.app.offline import Reply
    from surefoot.app.parity import Parity
    from surefoot.app.stack import Stack


Prompt = Annotated[str, typer.Option("--prompt", "-p", help="'-' reads it from stdin.")]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", help="Tokens of the reply at most.", min=1)
]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the text; no chat template.")]
Lookup = Annotated[
    bool,
    typer.Option(
        "--prompt-lookup",
        help="Draft tokens from the context; unpriced, but for --prompt-lookup-policy goodput.",
    ),
]
RecordTo = Annotated[
    Path | None, typer.Option("--record", help="Append the reply's trace to this file.")
]
CheckParity = Annotated[
    bool,
    typer.Option(
        "--check-parity",
        help="Decode plainly too, and fail where prompt lookup says something else.",
    ),
]


def generate(
    prompt: Prompt,
    max_tokens: MaxTokens = 256,
    temperature: flags.Temperature = 0.0,
    top_k: flags.TopK = 0,
    top_p: flags.TopP = 1.0,
    seed: flags.Seed = None,
    stop: Stop = None,
    system: flags.System = None,
    raw: Raw = False,
    model: flags.Model = "default",
    context: flags.Context = None,
    threads: flags.Threads = None,
    deterministic: flags.Deterministic = False,
    pre_tokenizer: flags.PreTokenizer = None,
    quantize: flags.QuantizeTo = None,
    chat_template: flags.ChatTemplateFile = None,
    prompt_lookup: Lookup = False,
    policy: DraftPolicyName = None,
    draft_max: DraftMax = None,
    ngram_min: NgramMin = 2,
    ngram_max: NgramMax = 3,
    record_to: RecordTo = None,
    check_parity: CheckParity = False,
) -> None:
    """Write a reply to stdout as it is made, and its speed to stderr."""
    text = sys.stdin.read() if prompt == "-" else prompt
    params = sampling(temperature, top_k, top_p, seed)
    lookup = None
    if prompt_lookup:
        lookup = WatchedLookup(lookup_config(policy, draft_max, ngram_min, ngram_max), params)
    else:
        require_lookup(check_parity, policy, draft_max)
    run = RunOptions(model, context, threads, deterministic, pre_tokenizer, quantize, chat_template)
    with running(run, lookup) as stack:
        prompt_ids = stack.encode_text(text) if raw else stack.encode_chat(one_turn(system, text))
        ask = partial(reply_to, stack, prompt_ids, params, max_tokens=max_tokens, stop=stop or ())
        reply = ask(write=_write)
        if not reply.text.endswith("\n"):
            _write("\n")
        if record_to is not None:
            write_traces([trace_of(reply, stack.capacity)], record_to, append=True)
        say(speed_line(reply))
        counts = None if lookup is None else lookup.summary_line(len(reply.token_ids))
        parity = parity_of(stack, reply, ask) if check_parity else None
    if parity is not None:
        say(str(parity))
    if counts is not None:
        say(counts)
    if reply.reason is FinishReason.CANCELLED:
        raise typer.Exit(130)
    if parity is not None:
        require_parity(parity, deterministic)


def require_lookup(check_parity: bool, policy: DraftPolicy | None, draft_max: int | None) -> None:
    """Raise `ConfigError` where a flag says how to look up and none says that."""
    if check_parity:
        raise ConfigError(
            "--check-parity compares prompt lookup with plain decoding: give --prompt-lookup too",
            param="check_parity",
        )
    for flag, given in (("--prompt-lookup-policy", policy), ("--draft-max", draft_max)):
        if given is not None:
            raise ConfigError(f"{flag} is {given}; it needs --prompt-lookup too", param=flag)


def parity_of(stack: Stack, reply: Reply, ask: Callable[..., Reply]) -> Parity | None:
    """`reply` against what the same request says when it decodes plainly; None if either was cut
    short by a Ctrl-C."""
    from surefoot.app.parity import compare

    if reply.reason is FinishReason.CANCELLED:
        return None
    plain = ask(write=str, speculation=False)
    if plain.reason is FinishReason.CANCELLED:
        return None
    return compare(stack, plain, reply, stack.model.spec.vocab_size)


def require_parity(parity: Parity, deterministic: bool) -> None:
    """Raise `ParityError` unless the texts are the same, or, where nothing promises that, part
    at near-ties alone."""
    if deterministic and not parity.identical:
        raise ParityError("prompt lookup changed the text, which --deterministic rules out")
    if not parity.proven:
        raise ParityError("prompt lookup changed the text where no near-tie explains it")


@contextmanager
def running(
    run: RunOptions,
    lookup: WatchedLookup | None = None,
    storage: StorageOptions | None = None,
) -> Iterator[Stack]:
    """A stack for one row at a time, closed at the end. `storage` None: every prompt is read
    whole."""
    from surefoot.app.stack import build_stack

    stack = build_stack(run, SchedulerConfig(max_rows=1), lookup, storage)
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
