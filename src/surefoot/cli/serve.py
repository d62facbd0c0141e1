"""`surefoot serve`: the HTTP server.

The socket is bound first, so that a taken port fails before anything is loaded; `/health` answers
503 while the model loads on a thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli import options as flags
from surefoot.cli import storage_flags
from surefoot.cli.console import say
from surefoot.cli.lookup_flags import DraftMax, DraftPolicyName, NgramMax, NgramMin, lookup_config
from surefoot.cli.server_lookup import (
    DraftKind,
    LookupOptions,
    lookup_options,
    server_policy,
)
from surefoot.cli.storage_flags import StorageOptions
from surefoot.config import SchedulerConfig
from surefoot.errors import ConfigError
from surefoot.server.limits import ServerConfig
from surefoot.server.listening import bind_socket, default_allowed_hosts, is_loopback
from surefoot.server.logs import log_handler


@dataclass(frozen=True, slots=True)
class Serving:
    """What `surefoot serve` was asked for, checked."""

    server: ServerConfig
    options: flags.RunOptions
    scheduling: SchedulerConfig
    aliases: tuple[str, ...] = ()
    lookup: LookupOptions | None = None
    storage: StorageOptions | None = None


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    model: flags.Model = "default",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free one.", min=0, max=65535)] = 8080,
    alias: Annotated[
        list[str] | None,
        typer.Option(help="A name clients may use for the model; the first is the one shown."),
    ] = None,
    parallel: Annotated[int, typer.Option(help="Requests decoded at once (1 to 64).")] = 4,
    context: flags.Context = None,
    threads: flags.Threads = None,
    prefill_chunk_size: Annotated[
        str, typer.Option(help="Prompt tokens read in one step, or auto.", metavar="N|auto")
    ] = "auto",
    deterministic: flags.Deterministic = False,
    pre_tokenizer: flags.PreTokenizer = None,
    quantize: flags.QuantizeTo = None,
    api_key: Annotated[
        list[str] | None, typer.Option(help="Ask clients for this key (repeatable).")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="Keys, one a line; # begins a comment.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="A web page's origin that may call this server (repeatable)."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A further Host header to answer to (repeatable; when on loopback)."),
    ] = None,
    max_queue_depth: Annotated[int, typer.Option(help="Requests that may wait.", min=0)] = 256,
    queue_timeout: storage_flags.QueueTimeout = 0.0,
    decode_storage_backend: storage_flags.Backend = None,
    kv_cache_budget: storage_flags.Budget = "auto",
    no_prompt_cache: storage_flags.NoPromptCache = False,
    enable_preemption: storage_flags.EnablePreemption = False,
    drain_timeout: Annotated[
        float, typer.Option(help="Seconds that replies may take to finish at the end.", min=0)
    ] = 30.0,
    draft_kind: Annotated[
        DraftKind, typer.Option(help="How tokens are proposed.")
    ] = DraftKind.PROMPT_LOOKUP,
    policy: DraftPolicyName = None,
    draft_max: DraftMax = 7,
    ngram_min: NgramMin = 2,
    ngram_max: NgramMax = 3,
    prompt_lookup_max_batch: Annotated[
        int, typer.Option(help="Propose while at most this many rows decode (1 to 64).")
    ] = 2,
    min_tokens_per_round: Annotated[
        str,
        typer.Option(
            help="Below this a row stops proposing: priced on this machine, never, or X tokens.",
            metavar="auto|off|X",
        ),
    ] = "auto",
    adaptive: Annotated[
        bool,
        typer.Option(
            "--prompt-lookup-adaptive/--no-prompt-lookup-adaptive",
            help="Stop where drafts miss; without it every match proposes in full.",
        ),
    ] = True,
    log_level: Annotated[LogLevel, typer.Option(help="What to log.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="How to log it.")] = LogFormat.TEXT,
) -> None:
    """Serve a model over the OpenAI HTTP API."""
    set_up_logging(log_level, log_format)
    keys = api_keys(api_key or (), api_key_file)
    config = ServerConfig(
        api_keys=keys,
        cors_origins=tuple(cors_origin or ()),
        allowed_hosts=allowed_hosts(host, allowed_host or ()),
        drain_timeout_s=drain_timeout,
    )
    scheduling = replace(
        flags.scheduler_config(parallel, max_queue_depth, prefill_chunk_size),
        preemption=enable_preemption,
        queue_timeout_s=queue_timeout,
    )
    storage = storage_flags.storage_options(
        decode_storage_backend, kv_cache_budget, not no_prompt_cache, parallel
    )
    options = flags.RunOptions(model, context, threads, deterministic, pre_tokenizer, quantize)
    base = lookup_config(
        policy or server_policy(min_tokens_per_round), draft_max, ngram_min, ngram_max, adaptive
    )
    lookup = lookup_options(base, min_tokens_per_round, prompt_lookup_max_batch)
    drafts = lookup if draft_kind is DraftKind.PROMPT_LOOKUP else None
    serving = Serving(config, options, scheduling, tuple(alias or ()), drafts, storage)
    listener = bind_socket(host, port)
    if not keys and not is_loopback(host):
        say(f"warning: {host} can be reached from outside, and no --api-key is asked for")
    # Imported only now: what takes time must not come before the port is known to be free.
    from surefoot.cli.serving import run

    run(serving, listener)


def set_up_logging(level: LogLevel, form: LogFormat = LogFormat.TEXT) -> None:
    """One line an event on stderr, with its request's id. What uvicorn says of starting and
    stopping we say ourselves."""
    handler = log_handler(as_json=form is LogFormat.JSON)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level is not LogLevel.DEBUG:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def api_keys(given: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """The keys of the command line and of the file. Raises `ConfigError` for a file without
    any: it was meant to close the server, which would stand open."""
    if file is None:
        return tuple(given)
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    read = [line for line in lines if line and not line.startswith("#")]
    if not read:
        raise ConfigError(f"{file} holds no API key", param="api_key_file")
    return (*given, *read)


def allowed_hosts(host: str, further: Sequence[str]) -> tuple[str, ...] | None:
    """Host headers to answer to; None: any. See `default_allowed_hosts`."""
    known = default_allowed_hosts(host)
    return tuple(further) or None if known is None else (*known, *further)
