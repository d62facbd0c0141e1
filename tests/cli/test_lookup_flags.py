"""The prompt-lookup flags of the command line as a configuration."""

from __future__ import annotations

import pytest

from surefoot.app.generate_lookup import WatchedLookup, lookup_config
from surefoot.core.request import SamplingParams
from surefoot.errors import ConfigError
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

GREEDY = SamplingParams(temperature=0.0)


def test_without_a_policy_it_is_the_cpus() -> None:
    assert lookup_config(None, 7, 2, 3) == PromptLookupConfig(policy=DraftPolicy.GRADED)


@pytest.mark.parametrize(
    ("policy", "adaptive", "widest"),
    [
        (DraftPolicy.GOODPUT, True, 15),
        (DraftPolicy.GOODPUT, False, 7),
        (DraftPolicy.GATED, True, 7),
        (None, True, 7),
    ],
)
def test_drafts_are_as_wide_as_the_policy_can_use(
    policy: DraftPolicy | None, adaptive: bool, widest: int
) -> None:
    assert lookup_config(policy, None, 2, 3, adaptive).max_draft == widest
    assert lookup_config(policy, 9, 2, 3, adaptive).max_draft == 9


@pytest.mark.parametrize("policy", list(DraftPolicy))
def test_every_flag_reaches_its_field(policy: DraftPolicy) -> None:
    config = lookup_config(policy, 5, 1, 4, adaptive=False)
    assert (config.policy, config.max_draft, config.ngram_min, config.ngram_max) == (
        policy,
        5,
        1,
        4,
    )
    assert not config.adaptive


@pytest.mark.parametrize(
    ("arguments", "field"),
    [((None, 0, 2, 3), "max_draft"), ((None, 7, 4, 3), "ngram_m"), ((None, 65, 2, 3), "max_draft")],
)
def test_what_does_not_fit_is_refused_by_its_field(
    arguments: tuple[None, int, int, int], field: str
) -> None:
    with pytest.raises(ConfigError, match=field):
        lookup_config(*arguments)


def test_a_reply_that_nobody_drafted_for_counts_nothing() -> None:
    lookup = WatchedLookup(lookup_config(None, 7, 2, 3), GREEDY)
    assert lookup.summary_line(5).startswith(
        "prompt lookup: rounds=0 drafted=0 paused=0 proposed=0 accepted=0 "
    )
    assert (lookup.num_spare_windows, lookup.idle_work) == (0, None)
