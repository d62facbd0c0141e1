"""PromptLookupConfig: defaults, limits, and the default policy of a backend."""

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from surefoot.errors import ConfigError
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig


def test_defaults() -> None:
    config = PromptLookupConfig()
    assert (config.ngram_max, config.ngram_min, config.max_draft) == (3, 2, 7)
    assert config.adaptive is True
    assert config.policy is DraftPolicy.GRADED
    assert config.min_tokens_per_round is None
    assert config.round_costs is None
    assert (config.resume_confirm_tokens, config.resume_confirmations) == (2, 1)
    assert (config.min_paused_span, config.plain_rounds_before_pipeline) == (0, 2)
    assert config.start_paused is False


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PromptLookupConfig().max_draft = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"ngram_min": 0}, "ngram_min", "ngram_min is 0; it must be between 1 and 3"),
        ({"ngram_min": 4}, "ngram_min", "ngram_min is 4; it must be between 1 and 3"),
        ({"ngram_max": 17}, "ngram_max", "ngram_max is 17; it must be between 1 and 16"),
        ({"ngram_max": 0}, "ngram_max", "ngram_max is 0; it must be between 1 and 16"),
        ({"max_draft": 0}, "max_draft", "max_draft is 0; it must be between 1 and 64"),
        ({"max_draft": 65}, "max_draft", "max_draft is 65; it must be between 1 and 64"),
        ({"max_draft": 2.5}, "max_draft", "max_draft is 2.5; it must be a whole number"),
        ({"max_draft": True}, "max_draft", "max_draft is True; it must be a whole number"),
        ({"policy": "gated"}, "policy", "policy is 'gated'; it must be a DraftPolicy"),
        ({"resume_confirm_tokens": 0}, "resume_confirm_tokens", "between 1 and 64"),
        ({"resume_repeat_tokens": 65}, "resume_repeat_tokens", "between 1 and 64"),
        ({"resume_confirmations": 0}, "resume_confirmations", "between 1 and 64"),
        ({"min_paused_span": -1}, "min_paused_span", "between 0 and 65536"),
        ({"plain_rounds_before_pipeline": -1}, "plain_rounds_before_pipeline", "0 and 64"),
        ({"min_tokens_per_round": 1.0}, "min_tokens_per_round", "more than 1 and at most"),
        ({"min_tokens_per_round": 8.01}, "min_tokens_per_round", "max_draft + 1 = 8"),
        ({"min_tokens_per_round": math.nan}, "min_tokens_per_round", "is nan"),
        ({"min_tokens_per_round": math.inf}, "min_tokens_per_round", "is inf"),
        ({"round_costs": (1.0,) * 8}, "round_costs", "has 8 entries; it must have at least"),
        ({"round_costs": (0.0,) * 8 + (math.nan,)}, "round_costs", "round_costs[8] is nan"),
        ({"round_costs": (0.0,) * 8 + (-1.0,)}, "round_costs", "round_costs[8] is -1.0"),
        (
            {"round_costs": (1.0,) * 9, "min_tokens_per_round": 2.0},
            "round_costs",
            "set at most one",
        ),
    ],
)
def test_a_violation_names_field_value_and_limit(
    fields: dict[str, Any], param: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PromptLookupConfig(**fields)
    assert caught.value.param == param
    assert said in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"ngram_max": 16, "ngram_min": 1},
        {"ngram_max": 16, "ngram_min": 16},
        {"max_draft": 1},
        {"max_draft": 64},
        {"min_tokens_per_round": 1.01},
        {"min_tokens_per_round": 8},
        {"round_costs": (0.0,) * 9},
    ],
)
def test_the_limits_themselves_are_allowed(fields: dict[str, Any]) -> None:
    config = replace(PromptLookupConfig(), **fields)
    assert {name: getattr(config, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("backend", "policy"),
    [
        ("cuda", DraftPolicy.GATED),
        ("CUDAExecutionProvider", DraftPolicy.GATED),
        ("cpu", DraftPolicy.GRADED),
        ("CPUExecutionProvider", DraftPolicy.GRADED),
        ("CoreMLExecutionProvider", DraftPolicy.GRADED),
    ],
)
def test_default_policy_of_a_backend(backend: str, policy: DraftPolicy) -> None:
    assert DraftPolicy.default_for(backend) is policy


def test_policies_are_graded_gated_and_goodput() -> None:
    assert [str(policy) for policy in DraftPolicy] == ["graded", "gated", "goodput"]
