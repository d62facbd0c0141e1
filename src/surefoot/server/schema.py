"""The two request bodies, field by field, with the rule that each must keep.

A body becomes a `ChatBody` or a `CompletionBody`, or one `InvalidRequestError` naming the field,
its rule and the value. Strict: `true` is not 1 and `"16"` is not 16; a whole number written as
`16.0` is accepted. `null` means the default everywhere. Knows no model: what depends on the
vocabulary or the context is checked in `gate.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError
from pydantic import ValidationInfo as Info

from surefoot.errors import InvalidRequestError
from surefoot.server import fields
from surefoot.server.body import JsonObject
from surefoot.server.limits import MAX_TOP_LOGPROBS, RequestLimits
from surefoot.server.unsupported import refuse_unsupported

Whole = Annotated[int, BeforeValidator(fields.whole_number)]
SEED_MASK = 2**64 - 1


def limits_of(info: Info) -> RequestLimits:
    limits = info.context
    assert isinstance(limits, RequestLimits)
    return limits


def _stop(value: object, info: Info) -> tuple[str, ...]:
    limits = limits_of(info)
    return fields.stop_strings(value, limits.max_stop, limits.max_stop_chars)


def _logit_bias(value: object, info: Info) -> tuple[tuple[int, float], ...]:
    return fields.logit_bias(value, limits_of(info).max_logit_bias)


def _messages(value: object, info: Info) -> tuple[dict[str, object], ...]:
    limits = limits_of(info)
    return fields.messages(value, limits.max_messages, limits.max_parts)


def _prompts(value: object, info: Info) -> tuple[fields.Prompt, ...]:
    return fields.prompts(value, limits_of(info).max_prompts)


def _token_ids(value: object, info: Info) -> tuple[int, ...]:
    return fields.stop_token_ids(value, limits_of(info).max_stop_token_ids)


def _choices(value: object, info: Info) -> int:
    limits = limits_of(info)
    return fields.choices(value, str(info.field_name), min(limits.max_n, limits.max_rows))


Choices = Annotated[int | None, PlainValidator(_choices)]


class CommonBody(BaseModel):
    """Fields of both routes. Each `description` is the rule told to a client that broke it."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    model: str | None = Field(None, description="a string")
    max_tokens: Whole | None = Field(None, ge=1, description="an integer of at least 1")
    n: Choices = None
    temperature: float | None = Field(None, ge=0, le=2, description="a number from 0 to 2")
    top_p: float | None = Field(None, gt=0, le=1, description="a number above 0, up to 1")
    top_k: Whole | None = Field(
        None, ge=-1, le=2**31 - 1, description="an integer of at least 0, or -1 for no limit"
    )
    min_p: float | None = Field(None, ge=0, le=1, description="a number from 0 to 1")
    repetition_penalty: float | None = Field(
        None, gt=0, le=10, description="a number above 0, up to 10"
    )
    presence_penalty: float | None = Field(None, ge=-2, le=2, description="a number from -2 to 2")
    frequency_penalty: float | None = Field(None, ge=-2, le=2, description="a number from -2 to 2")
    seed: Whole | None = Field(None, description="an integer")
    stop: Annotated[tuple[str, ...], PlainValidator(_stop)] = ()
    stop_token_ids: Annotated[tuple[int, ...], PlainValidator(_token_ids)] = ()
    logit_bias: Annotated[tuple[tuple[int, float], ...], PlainValidator(_logit_bias)] = ()
    stream: bool | None = Field(None, description="true or false")
    stream_options: Annotated[bool, PlainValidator(fields.include_usage)] = False
    ignore_eos: bool | None = Field(None, description="true or false")
    speculation: bool | None = Field(None, description="true or false")
    timings_per_token: bool | None = Field(None, description="true or false")
    cache_salt: str | None = Field(
        None, max_length=256, description="a string of up to 256 characters"
    )
    priority: Whole | None = Field(None, ge=-100, le=100, description="an integer from -100 to 100")

    @property
    def include_usage(self) -> bool:
        return self.stream_options

    @property
    def num_choices(self) -> int:
        return self.n or 1


class ChatBody(CommonBody):
    messages: Annotated[tuple[dict[str, object], ...], PlainValidator(_messages)]
    max_completion_tokens: Whole | None = Field(None, ge=1, description="an integer of at least 1")
    logprobs: bool | None = Field(None, description="true or false")
    top_logprobs: Whole | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description=f"an integer from 0 to {MAX_TOP_LOGPROBS}"
    )

    @property
    def token_limit(self) -> int | None:
        """Both fields set: the smaller. None: the room left in the context."""
        given = [n for n in (self.max_tokens, self.max_completion_tokens) if n is not None]
        return min(given, default=None)

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionBody(CommonBody):
    prompt: Annotated[tuple[fields.Prompt, ...], PlainValidator(_prompts)]
    logprobs: Whole | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description=f"an integer from 0 to {MAX_TOP_LOGPROBS}"
    )
    echo: bool | None = Field(None, description="true or false")
    best_of: Choices = None

    @property
    def token_limit(self) -> int:
        """OpenAI's default of 16 when not given."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs


Body = TypeVar("Body", bound=CommonBody)


def parse_chat(data: JsonObject, limits: RequestLimits) -> ChatBody:
    body = _parse(ChatBody, data, limits)
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    return body


def parse_completion(data: JsonObject, limits: RequestLimits) -> CompletionBody:
    body = _parse(CompletionBody, data, limits)
    fields.check_best_of(body.best_of, body.num_choices)
    if body.echo and body.logprobs is not None:
        fields.refuse("echo", "echo with logprobs is not supported: the prompt is not scored")
    if len(body.prompt) * body.num_choices > limits.max_rows:
        raise InvalidRequestError(
            f"{len(body.prompt)} prompts with n {body.num_choices} ask for"
            f" {len(body.prompt) * body.num_choices} choices; the limit is {limits.max_rows}",
            param="prompt",
        )
    return body


def _parse(form: type[Body], data: JsonObject, limits: RequestLimits) -> Body:
    refuse_unsupported(data)
    present = {name: value for name, value in data.items() if value is not None}
    try:
        body = form.model_validate(present, context=limits)
    except ValidationError as error:
        raise _first_fault(form, error) from None
    if data.get("stream_options") is not None and not body.stream:
        raise InvalidRequestError(
            "stream_options is only for requests with stream true", param="stream_options"
        )
    return body


def _first_fault(form: type[CommonBody], error: ValidationError) -> InvalidRequestError:
    fault: Any = error.errors(include_url=False, include_context=False)[0]
    name = str(fault["loc"][0])
    if fault["type"] == "missing":
        return InvalidRequestError(f"{name} is required", param=name)
    rule = form.model_fields[name].description
    return fields.broken_rule(name, rule or "valid", fault["input"])


def fold_seed(seed: int) -> int:
    """Any integer to 64 bits: two's complement, so -1 and 2**64 - 1 are the same seed."""
    return seed & SEED_MASK
