"""From a parsed body to rows the scheduler can run: the last place where a request is refused.

Checks what depends on the model (vocabulary, context, template), encodes the prompts on a thread
of its own, and gives every row its seed, its choice number and its room. Past this module nothing
validates again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from surefoot.core.request import Request, SamplingParams
from surefoot.errors import ContextLengthError, InvalidRequestError, ModelNotFoundError
from surefoot.server.fields import Prompt
from surefoot.server.schema import ChatBody, CommonBody, CompletionBody, fold_seed
from surefoot.server.state import ServedModel
from surefoot.server.workers import Workers

GREEDY_BELOW = 1e-5
"""A temperature under this is zero: the best token's lead over the next, divided by it, is
beyond any draw's noise unless the two are equal to rounding."""


@dataclass(frozen=True, slots=True)
class Job:
    """The rows of one body, prompt by prompt, each prompt's copies together; a row's place is
    its choice index. `echo` is parallel to them: text to repeat before a completion."""

    rows: tuple[Request, ...]
    num_logprobs: int | None
    stream: bool
    include_usage: bool
    echo: tuple[str, ...]


class Gate:
    """Builds jobs."""

    def __init__(self, max_prompt_tokens: int, workers: Workers) -> None:
        self._max_prompt_tokens = max_prompt_tokens
        self._workers = workers

    async def chat_job(self, model: ServedModel, body: ChatBody) -> Job:
        check_model_name(model, body.model)
        encode_chat = model.encode_chat
        if encode_chat is None:
            raise InvalidRequestError(
                "the model has no chat template; use /v1/completions", param="messages"
            )
        prompt_ids = await self._workers.run(partial(encode_chat, body.messages))
        return self._job(model, body, [prompt_ids])

    async def completion_job(self, model: ServedModel, body: CompletionBody) -> Job:
        """A text prompt is encoded with special tokens recognised: here the client writes the
        template by hand. Chat content never is."""
        check_model_name(model, body.model)
        check_prompt_chars(model, body.prompt)
        prompts = [
            await self._workers.run(partial(encode_prompt, model, prompt)) for prompt in body.prompt
        ]
        job = self._job(model, body, prompts)
        if not body.echo:
            return job
        texts = [prompt_text(model, prompt) for prompt in body.prompt]
        return replace(job, echo=tuple(text for text in texts for _ in range(body.num_choices)))

    def _job(
        self,
        model: ServedModel,
        body: ChatBody | CompletionBody,
        prompts: Sequence[Sequence[int]],
    ) -> Job:
        limit = body.token_limit
        param = "messages" if isinstance(body, ChatBody) else "prompt"
        check_token_ids(model, body)
        seed = secrets.randbits(64) if body.seed is None else fold_seed(body.seed)
        rows = []
        for prompt_ids in prompts:
            room = self._room(model, prompt_ids, param)
            max_tokens = room if limit is None else min(limit, room)
            for choice in range(body.num_choices):
                sampling = sampling_params(body, seed, choice)
                rows.append(make_row(model, body, tuple(prompt_ids), max_tokens, sampling))
        return Job(
            tuple(rows),
            body.num_logprobs,
            bool(body.stream),
            body.include_usage,
            ("",) * len(rows),
        )

    def _room(self, model: ServedModel, prompt_ids: Sequence[int], param: str) -> int:
        """Tokens that still fit the context after this prompt: at least 1, or an error."""
        if not prompt_ids:
            raise InvalidRequestError("the prompt holds no token", param=param)
        if self._max_prompt_tokens and len(prompt_ids) > self._max_prompt_tokens:
            raise ContextLengthError(
                f"the prompt holds {len(prompt_ids)} tokens; this server's limit is"
                f" {self._max_prompt_tokens}",
                param=param,
            )
        room = model.context_length - len(prompt_ids)
        if room < 1:
            raise ContextLengthError(
                f"the model's context length is {model.context_length} tokens; the prompt holds"
                f" {len(prompt_ids)} and leaves no room for a reply",
                param=param,
            )
        return room


def check_model_name(model: ServedModel, name: str | None) -> None:
    """No name is the served model; another name is a 404."""
    if name is not None and not model.answers_to(name):
        raise ModelNotFoundError(
            f"the model {name[:100]!r} is not served here; {model.id!r} is", param="model"
        )


def check_prompt_chars(model: ServedModel, prompts: Sequence[Prompt]) -> None:
    """Refuse what no encoding could make fit, before the work of encoding it. The chat template's
    output is held to the same by `encode_chat`."""
    limit = model.max_prompt_chars
    longest = max((len(each) for each in prompts if isinstance(each, str)), default=0)
    if limit is not None and longest > limit:
        raise ContextLengthError(
            f"the prompt has {longest} characters; no more than {limit} can fit the tokens it"
            " may have",
            param="prompt",
        )


def encode_prompt(model: ServedModel, prompt: Prompt) -> list[int]:
    if isinstance(prompt, str):
        tokenizer = model.tokenizer
        return tokenizer.encode(prompt, parse_special=True, add_bos=tokenizer.add_bos)
    for token_id in prompt:
        if token_id >= model.tokenizer.vocab_size:
            raise outside_vocabulary(model, "prompt", token_id)
    return list(prompt)


def prompt_text(model: ServedModel, prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return b"".join(map(model.tokenizer.token_bytes, prompt)).decode("utf-8", "replace")


def check_token_ids(model: ServedModel, body: CommonBody) -> None:
    for token_id, _ in body.logit_bias:
        if token_id >= model.tokenizer.vocab_size:
            raise outside_vocabulary(model, "logit_bias", token_id)
    for token_id in body.stop_token_ids:
        if token_id >= model.tokenizer.vocab_size:
            raise outside_vocabulary(model, "stop_token_ids", token_id)


def outside_vocabulary(model: ServedModel, param: str, token_id: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"{param} names token {token_id}; the vocabulary ends at {model.tokenizer.vocab_size - 1}",
        param=param,
    )


def or_default(value: float | None, default: float) -> float:
    return default if value is None else value


def sampling_params(body: ChatBody | CompletionBody, seed: int, choice: int) -> SamplingParams:
    temperature = or_default(body.temperature, 1.0)
    return SamplingParams(
        temperature=0.0 if temperature < GREEDY_BELOW else temperature,
        top_k=max(body.top_k or 0, 0),
        top_p=or_default(body.top_p, 1.0),
        min_p=or_default(body.min_p, 0.0),
        repetition_penalty=or_default(body.repetition_penalty, 1.0),
        presence_penalty=or_default(body.presence_penalty, 0.0),
        frequency_penalty=or_default(body.frequency_penalty, 0.0),
        seed=seed,
        choice=choice,
        logit_bias=body.logit_bias,
        logprobs=body.num_logprobs,
    )


def make_row(
    model: ServedModel,
    body: CommonBody,
    prompt_ids: tuple[int, ...],
    max_tokens: int,
    sampling: SamplingParams,
) -> Request:
    """`ignore_eos` drops the model's own end tokens; `stop_token_ids` still count."""
    model_ends = frozenset() if body.ignore_eos else model.tokenizer.end_ids
    return Request(
        request_id=model.sink.new_request_id(),
        prompt_ids=prompt_ids,
        max_tokens=max_tokens,
        sampling=sampling,
        text=model.make_text(body.stop),
        end_ids=model_ends | frozenset(body.stop_token_ids),
        speculation=body.speculation is not False,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
        timings_per_token=bool(body.timings_per_token),
    )
