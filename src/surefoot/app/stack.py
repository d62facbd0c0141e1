"""Putting the parts together: from a model file to something that takes requests.

The one place that knows every part. `serve`, `generate` and `chat` build the same stack; the last
two are its only client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from surefoot.app.console import say
from surefoot.app.environment import free_memory, model_hub, model_store, num_cores
from surefoot.app.kv_plan import StorageOptions, StoragePlan, plan_storage
from surefoot.app.options import RunOptions
from surefoot.config import EngineConfig, SchedulerConfig
from surefoot.engine.engine import Engine
from surefoot.errors import ConfigError, ModelError
from surefoot.loading.model import LoadedModel, TextFiles
from surefoot.loading.open import load_model as open_model
from surefoot.loading.quantizing import QUANTIZE, Quantize
from surefoot.loading.store.models import ModelStore
from surefoot.loading.store.resolve import resolve_model
from surefoot.output.stop_text import RowText
from surefoot.runtime.loop import EngineLoop
from surefoot.runtime.mailbox import Mailbox
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.text.template.chat import ChatTemplate
from surefoot.text.tokenizer import Tokenizer

CLOSE_TIMEOUT_S = 10.0
"""How long an engine that hangs may hold up the end of the program."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A loaded model that runs requests. `template` None: the file has none."""

    model: LoadedModel
    engine_config: EngineConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    engine: Engine
    loop: EngineLoop
    mailbox: Mailbox
    storage: StoragePlan

    @property
    def capacity(self) -> int:
        return self.engine.capacity

    @property
    def end_ids(self) -> frozenset[int]:
        return self.tokenizer.end_ids

    def encode_chat(
        self, messages: Sequence[Mapping[str, object]], max_chars: int | None = None
    ) -> list[int]:
        """Raises `ModelError` where there is no template."""
        if self.template is None:
            raise ModelError(
                f"{self.model.name} has no chat template: --chat-template FILE gives one, "
                "`generate --raw` needs none"
            )
        return self.template.encode_chat(self.tokenizer, messages, max_chars=max_chars)

    def encode_text(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, parse_special=True, add_bos=self.tokenizer.add_bos)

    def make_text(self, stop: Sequence[str] = ()) -> RowText:
        return RowText(self.tokenizer, tuple(stop))

    def close(self) -> None:
        """End what runs, then the engine."""
        self.loop.shutdown(drain=False, timeout=CLOSE_TIMEOUT_S)
        self.engine.close()


class LookupMaker(Protocol):
    """Makes the scheduler's prompt lookup. `num_spare_windows`: windows it wants to itself."""

    @property
    def num_spare_windows(self) -> int: ...

    def make(self, store: ModelStore, engine: Engine, model: LoadedModel) -> PromptLookup:
        """Called once, when the engine is there and before it is used."""
        ...

    @property
    def idle_work(self) -> Iterator[None] | None:
        """After `make`: what is left to do while no request is there."""
        ...


def build_stack(
    options: RunOptions,
    scheduling: SchedulerConfig,
    lookup: LookupMaker | None = None,
    storage: StorageOptions | None = None,
) -> Stack:
    """Resolve, load and start. `storage` None: windows alone, without a limit. Raises
    `SurefootError`; nothing is left running then."""
    store = model_store()
    loaded = load_model(options, store)
    source = None if options.chat_template is None else template_source(options.chat_template)
    tokenizer, template = text_of(loaded, options.pre_tokenizer, source)
    plan = storage_plan(storage or StorageOptions(), loaded, options, scheduling.max_rows)
    spare = 0 if lookup is None else lookup.num_spare_windows
    engine = open_engine(loaded, store, options, scheduling.max_rows, plan.num_blocks, spare)
    try:
        part = None if lookup is None else lookup.make(store, engine, loaded)
        rows = plan.storage(engine, loaded.fingerprint)
        scheduler = Scheduler(engine, scheduling, part, storage=rows)
        loop = EngineLoop(scheduler, None if lookup is None else lookup.idle_work)
    except BaseException:
        engine.close()
        raise
    loop.start()
    mailbox = Mailbox(loop)
    return Stack(loaded, engine.config, tokenizer, template, engine, loop, mailbox, plan)


def load_model(options: RunOptions, store: ModelStore) -> LoadedModel:
    """Resolve and read the model's file. Raises `ModelError`, or `ConfigError` for a flag."""
    path = resolve_model(options.model, store, hub=model_hub(), say=say)
    return open_model(path, quantize_flag(options.quantize), progress=quantizing_line)


def quantize_flag(text: str | None) -> Quantize | None:
    """What `--quantize` says. Raises `ConfigError` for anything but its three words."""
    for choice in QUANTIZE:
        if text == choice:
            return choice
    if text is None:
        return None
    raise ConfigError(
        f"--quantize is {text!r}; it must be one of {', '.join(QUANTIZE)}", param="quantize"
    )


def quantizing_line(done: int, total: int) -> None:
    """Say how far the weights are, at every tenth."""
    if done * 10 // total > (done - 1) * 10 // total:
        say(f"quantizing the weights, once: {done} of {total} matrices")


def storage_plan(
    storage: StorageOptions, model: LoadedModel, options: RunOptions, num_windows: int
) -> StoragePlan:
    """Memory for KV as it is asked for, by what is free now. Raises `ConfigError`."""
    capacity = engine_config(options, model.spec.context_length, num_windows).capacity
    per_token = model.spec.kv_bytes_per_token
    return plan_storage(storage, per_token, capacity, num_windows, free_memory())


def open_engine(
    model: LoadedModel,
    store: ModelStore,
    options: RunOptions,
    num_windows: int,
    num_blocks: int = 0,
    num_spare_windows: int = 0,
) -> Engine:
    """An engine over a loaded model. Raises `SurefootError`."""
    config = engine_config(options, model.spec.context_length, num_windows, num_blocks)
    config = replace(config, num_spare_windows=num_spare_windows)
    return Engine(model.spec, model.weights, model.fingerprint, store.graphs, config)


def template_source(path: Path) -> str:
    """What `--chat-template` names. Raises `ConfigError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"--chat-template {path} cannot be read: {why}", param="chat_template"
        ) from error


def text_of(
    model: LoadedModel, pre: str | None = None, template_by_hand: str | None = None
) -> tuple[Tokenizer, ChatTemplate | None]:
    """The model's tokenizer, told of the token that its template ends turns with, and the
    template, the model's own unless one is given. Raises `ModelError` with the file's name."""
    try:
        if model.text is not None:
            tokenizer, template = text_of_folder(model.text, template_by_hand)
        elif not model.metadata:
            raise ModelError("the folder holds no tokenizer.json")
        else:
            tokenizer = Tokenizer.from_gguf_metadata(model.metadata, pre=pre)
            template = ChatTemplate.from_gguf_metadata(model.metadata, template_by_hand)
    except ModelError as error:
        raise ModelError(f"{model.name}: {error.message}") from error
    if template is not None:
        tokenizer.also_end_at(template.end_of_turn_ids(tokenizer))
    return tokenizer, template


def text_of_folder(
    text: TextFiles, template_by_hand: str | None
) -> tuple[Tokenizer, ChatTemplate | None]:
    """The same from a Hugging Face folder's files."""
    tokenizer = Tokenizer.from_tokenizer_json(
        text.tokenizer_json,
        bos_text=text.bos_text,
        eos_text=text.eos_text,
        add_bos=text.add_bos,
        end_ids=text.end_ids,
    )
    source = text.chat_template if template_by_hand is None else template_by_hand
    if source is None or not source.strip():
        return tokenizer, None
    return tokenizer, ChatTemplate(
        source, bos_text=text.bos_text or "", eos_text=text.eos_text or ""
    )


def engine_config(
    options: RunOptions, model_context: int, num_windows: int, num_blocks: int = 0
) -> EngineConfig:
    """Fill in what was left open. Raises `ConfigError` for a context beyond the model's."""
    context = options.context or model_context
    if context > model_context:
        raise ConfigError(
            f"--ctx is {context}; the model was trained for {model_context} tokens at most",
            param="ctx",
        )
    return EngineConfig(
        num_windows=num_windows,
        capacity=context,
        num_threads=options.threads or num_cores(),
        deterministic=options.deterministic,
        num_blocks=num_blocks,
    )
