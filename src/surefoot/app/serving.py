"""A server's life on a bound socket: load beside it, serve, drain, close."""

from __future__ import annotations

import logging
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import surefoot
from surefoot.app.console import human_bytes, say
from surefoot.app.offline import reply_to, sampling
from surefoot.app.server_lookup import ServerLookup
from surefoot.config import SchedulerConfig
from surefoot.errors import ModelError, SurefootError
from surefoot.loading.store.models import DEFAULT_NAME, MODEL_SUFFIX
from surefoot.server.app import create_app
from surefoot.server.listening import base_url
from surefoot.server.serve import run_server
from surefoot.server.state import ServedModel, ServerState

if TYPE_CHECKING:
    from surefoot.app.serve_options import Serving
    from surefoot.app.stack import Stack

log = logging.getLogger(__name__)

WARM_UP_TOKENS = 3
"""A prompt, a synchronous step and a pipelined one: the first client finds all three used."""


def run(serving: Serving, listener: socket.socket) -> None:
    """Serve until a signal. Raises what the load failed with."""
    state = ServerState()
    app = create_app(state, serving.server)
    say(f"surefoot {surefoot.__version__} on {base_url(listener)}, loading {serving.options.model}")
    loader = Loader(serving, state, base_url(listener))
    loader.start()
    try:
        run_server(app, listener, state, serving.server)
    finally:
        loader.close()


class Loader:
    """Builds the stack on a thread of its own and hands it to the server's state."""

    def __init__(self, serving: Serving, state: ServerState, url: str) -> None:
        self._serving = serving
        self._state = state
        self._url = url
        self._lookup = None if serving.lookup is None else ServerLookup(serving.lookup)
        self._stack: Stack | None = None
        self._thread = threading.Thread(target=self._load, name="surefoot-loader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Wait for a load under way, which cannot be cut short, and close what was built."""
        self._thread.join()
        if self._stack is not None:
            self._stack.close()

    def _load(self) -> None:
        began = time.monotonic()
        try:
            from surefoot.app.stack import build_stack

            serving, lookup = self._serving, self._lookup
            self._stack = stack = build_stack(
                serving.options, serving.scheduling, lookup, serving.storage
            )
            warm_up(stack)
        except SurefootError as error:
            self._state.set_failed(error)
        except OSError as error:
            self._state.set_failed(ModelError(f"{error.filename}: {error.strerror}"))
        except Exception as error:
            log.exception("the model could not be loaded")
            self._state.set_failed(ModelError(f"the model could not be loaded: {error}"))
        else:
            self._state.set_ready(served_model(stack, serving, lookup))
            for line in summary(stack, serving.scheduling, lookup):
                say(line)
            say(f"ready in {time.monotonic() - began:.1f} s: {self._url}/v1")


def warm_up(stack: Stack) -> None:
    """One short reply, so that whatever is done at first use is done."""
    prompt_ids = stack.encode_text("Hello")
    params = sampling(temperature=0.0, top_k=0, top_p=1.0, seed=0)
    reply_to(stack, prompt_ids, params, max_tokens=WARM_UP_TOKENS, write=str)


def served_model(stack: Stack, serving: Serving, lookup: ServerLookup | None) -> ServedModel:
    """Named by the first alias, else by the file; it answers to all of these, and the default
    model to "default"."""
    file = stack.model.name
    names = [*serving.aliases, file.removesuffix(MODEL_SUFFIX), file]
    if serving.options.model == DEFAULT_NAME:
        names.append(DEFAULT_NAME)
    most_tokens = serving.server.request.max_prompt_tokens or stack.capacity
    max_chars = min(most_tokens, stack.capacity) * stack.tokenizer.max_chars_per_token
    return ServedModel(
        id=names[0],
        created=int(time.time()),
        tokenizer=stack.tokenizer,
        encode_chat=(
            None if stack.template is None else partial(stack.encode_chat, max_chars=max_chars)
        ),
        make_text=stack.make_text,
        context_length=stack.capacity,
        max_prompt_chars=max_chars,
        sink=stack.mailbox,
        aliases=tuple(names[1:]),
        properties=partial(properties, stack, serving.scheduling, lookup),
        loop_counts=stack.loop.stats,
        alive=lambda: stack.loop.healthy,
    )


def properties(
    stack: Stack, scheduling: SchedulerConfig, lookup: ServerLookup | None
) -> dict[str, object]:
    """The resolved settings as they are now, for `/props`: a cost table may be replaced."""
    return {
        "architecture": stack.model.spec.architecture,
        "weight_bytes": stack.model.weight_bytes,
        "parallel": scheduling.max_rows,
        "max_queue_depth": scheduling.max_queue_depth,
        "threads": stack.engine_config.num_threads,
        "deterministic": stack.engine_config.deterministic,
        "prefill_chunk": {"busy": scheduling.chunk_busy, "alone": scheduling.chunk_alone},
        "preemption": scheduling.preemption,
        "storage": stack.storage.properties(),
        "prompt_lookup": None if lookup is None else lookup.properties(),
    }


def summary(stack: Stack, scheduling: SchedulerConfig, lookup: ServerLookup | None) -> list[str]:
    """What was decided, for the person who started it."""
    config, spec = stack.engine_config, stack.model.spec
    kv = human_bytes(config.capacity * spec.kv_bytes_per_token)
    mode = ", deterministic" if config.deterministic else ""
    chunks = f"chunks of {scheduling.chunk_alone}, {scheduling.chunk_busy} while rows run"
    lines = [
        f"model: {stack.model.name}, {spec.architecture}, {human_bytes(stack.model.weight_bytes)}",
        f"room: {scheduling.max_rows} rows of {config.capacity:,} tokens, up to {kv} each; "
        f"{scheduling.max_queue_depth} more wait",
        stack.storage.summary(),
        f"steps: {config.num_threads} threads{mode}; prompts in {chunks}",
    ]
    lines += ["prompt lookup: off (--draft-kind none)"] if lookup is None else lookup.summary()
    if stack.template is None:
        lines.append(
            "warning: the model has no chat template; only /v1/completions answers "
            "(--chat-template FILE gives it one)"
        )
    return lines
