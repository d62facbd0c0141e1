"""`surefoot serve`: the HTTP server.

The socket is bound first, so that a taken port fails before anything is loaded; `/health` answers
503 while the model loads on a thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from surefoot.app.console import say
from surefoot.app.generate_lookup import lookup_config
from surefoot.app.kv_plan import storage_options
from surefoot.app.options import RunOptions, scheduler_config
from surefoot.app.serve_options import Serving
from surefoot.app.server_lookup import (
    DraftKind,
    lookup_options,
    server_policy,
)
from surefoot.cli.flags import model as flags
from surefoot.cli.flags import server as own
from surefoot.cli.flags import storage as storage_flags
from surefoot.cli.flags.limits import LIMIT_FLAG_NAMES, Values, limits_from, with_limit_flags
from surefoot.cli.flags.lookup import DraftMax, DraftPolicyName, NgramMax, NgramMin
from surefoot.cli.flags.names import FLAG_NAMES, naming_flags
from surefoot.cli.flags.server import LogFormat, LogLevel
from surefoot.errors import ConfigError
from surefoot.server.limits import ServerConfig
from surefoot.server.listening import bind_socket, default_allowed_hosts, is_loopback
from surefoot.server.logs import log_handler

MAX_ALIAS = 200
"""Characters of a model's name."""


@with_limit_flags
def serve(
    limits: Values,
    model: flags.Model = "default",
    host: own.Host = "127.0.0.1",
    port: own.Port = 8080,
    alias: own.Alias = None,
    parallel: own.Parallel = 4,
    context: flags.Context = None,
    threads: flags.Threads = None,
    prefill_chunk_size: own.PrefillChunkSize = "auto",
    deterministic: flags.Deterministic = False,
    pre_tokenizer: flags.PreTokenizer = None,
    quantize: flags.QuantizeTo = None,
    chat_template: flags.ChatTemplateFile = None,
    api_key: own.ApiKey = None,
    api_key_file: own.ApiKeyFile = None,
    cors_origin: own.CorsOrigin = None,
    allowed_host: own.AllowedHost = None,
    max_queue_depth: own.MaxQueueDepth = 256,
    queue_timeout: storage_flags.QueueTimeout = 0.0,
    decode_storage_backend: storage_flags.Backend = None,
    kv_cache_budget: storage_flags.Budget = "auto",
    no_prompt_cache: storage_flags.NoPromptCache = False,
    enable_preemption: storage_flags.EnablePreemption = False,
    drain_timeout: own.DrainTimeout = 30.0,
    draft_kind: own.Kind = DraftKind.PROMPT_LOOKUP,
    policy: DraftPolicyName = None,
    draft_max: DraftMax = None,
    ngram_min: NgramMin = 2,
    ngram_max: NgramMax = 3,
    prompt_lookup_max_batch: own.MaxBatch = 2,
    min_tokens_per_round: own.MinTokensPerRound = "auto",
    adaptive: own.Adaptive = True,
    log_level: own.Level = LogLevel.INFO,
    log_format: own.Format = LogFormat.TEXT,
) -> None:
    """Serve a model over the OpenAI HTTP API."""
    set_up_logging(log_level, log_format)
    with naming_flags(FLAG_NAMES | LIMIT_FLAG_NAMES):
        keys = api_keys(api_key or (), api_key_file)
        hosts = allowed_hosts(host, allowed_host or ())
        config = server_config(limits, keys, cors_origin or (), hosts, drain_timeout)
        scheduling = replace(
            scheduler_config(parallel, max_queue_depth, prefill_chunk_size),
            preemption=enable_preemption,
            queue_timeout_s=queue_timeout,
        )
        storage = storage_options(
            decode_storage_backend, kv_cache_budget, not no_prompt_cache, parallel
        )
        options = RunOptions(
            model, context, threads, deterministic, pre_tokenizer, quantize, chat_template
        )
        base = lookup_config(
            policy or server_policy(min_tokens_per_round), draft_max, ngram_min, ngram_max, adaptive
        )
        lookup = lookup_options(base, min_tokens_per_round, prompt_lookup_max_batch)
        drafts = lookup if draft_kind is DraftKind.PROMPT_LOOKUP else None
        names = checked_aliases(alias or ())
        serving = Serving(config, options, scheduling, names, drafts, storage)
        listener = bind_socket(host, port)
        if not keys and not is_loopback(host):
            say(f"warning: {host} can be reached from outside, and no --api-key is asked for")
        # Imported only now: what takes time must not come before the port is known to be free.
        from surefoot.app.serving import run

        run(serving, listener)


def set_up_logging(level: LogLevel, form: LogFormat = LogFormat.TEXT) -> None:
    """One line an event on stderr, with its request's id. What uvicorn says of starting and
    stopping we say ourselves; what is no HTTP is counted in `/metrics`, a line each would let
    anybody fill the log."""
    handler = log_handler(as_json=form is LogFormat.JSON)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level is not LogLevel.DEBUG:
        logging.getLogger("uvicorn").setLevel(logging.ERROR)


def server_config(
    limits: Values,
    keys: tuple[str, ...],
    cors_origins: Sequence[str],
    hosts: tuple[str, ...] | None,
    drain_timeout_s: float,
) -> ServerConfig:
    """Raises `ConfigError` naming field, value and limit."""
    sections = limits_from(limits)
    return ServerConfig(
        api_keys=keys,
        cors_origins=tuple(cors_origins),
        allowed_hosts=hosts,
        drain_timeout_s=drain_timeout_s,
        body=sections.body,
        request=sections.request,
        reply=sections.reply,
        connection=sections.connection,
    )


def checked_aliases(given: Sequence[str]) -> tuple[str, ...]:
    """Names that a reply's JSON and a log line can show. Raises `ConfigError`."""
    for name in given:
        if not (1 <= len(name) <= MAX_ALIAS and name.isprintable()):
            raise ConfigError(
                f"alias is {name[:MAX_ALIAS]!r}; it must be 1 to {MAX_ALIAS} printable characters",
                param="alias",
            )
    return tuple(given)


def api_keys(given: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """The keys of the command line and of the file. Raises `ConfigError` for a file without
    any: it was meant to close the server, which would stand open."""
    if file is None:
        return tuple(given)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"api_key_file is {file}: {why}", param="api_key_file") from None
    lines = [line.strip() for line in text.splitlines()]
    read = [line for line in lines if line and not line.startswith("#")]
    if not read:
        raise ConfigError(f"{file} holds no API key", param="api_key_file")
    return (*given, *read)


def allowed_hosts(host: str, further: Sequence[str]) -> tuple[str, ...] | None:
    """Host headers to answer to; None: any. See `default_allowed_hosts`."""
    known = default_allowed_hosts(host)
    return tuple(further) or None if known is None else (*known, *further)
