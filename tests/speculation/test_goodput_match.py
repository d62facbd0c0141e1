"""What GOODPUT sees at each position: the match, how long it has run, who agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.goodput.match import (
    KEPT_RUN,
    MAX_RIVALS,
    SHORTEST,
    MatchTracker,
    Sight,
)
from surefoot.speculation.lookup import find_draft

CONFIG = PromptLookupConfig()


def tracker(context: Sequence[int], config: PromptLookupConfig = CONFIG) -> MatchTracker:
    return MatchTracker(config, list(context))


def test_no_match_has_nothing_to_show() -> None:
    match = tracker([1, 2, 3, 4])
    assert (match.source, match.run) == (None, 0)
    assert match.proposal(7) == []
    assert list(match.sights(7)) == []
    assert match.advance(5) is None


def test_a_single_token_is_a_match() -> None:
    match = tracker([1, 2, 3, 4, 2], PromptLookupConfig(ngram_min=3))
    assert (match.source, match.run) == (2, 1)
    assert match.proposal(2) == [3, 4]


def test_a_match_runs_on_while_its_tokens_come_true() -> None:
    match = tracker([1, 2, 3, 4, 5, 9, 1, 2])
    assert (match.source, match.run) == (2, 2)
    assert match.proposal(3) == [3, 4, 5]
    assert match.advance(3) is True
    assert (match.source, match.run) == (3, 3)
    assert match.advance(7) is False
    assert (match.source, match.run) == (None, 0)


def test_the_run_is_counted_beyond_what_lookup_compares() -> None:
    assert tracker([*range(20), 99, *range(20)]).run == 20


def test_a_proposal_goes_on_in_the_period_of_the_text() -> None:
    match = tracker([1, 2, 3, 1, 2, 3])
    assert match.source == 3
    assert match.proposal(7) == [1, 2, 3, 1, 2, 3, 1]
    assert match.proposal(7, frozenset({2})) == [1, 2]


def test_sights_count_who_agrees_token_by_token() -> None:
    """`1 2` was followed by 3 4, by 3 5 and, last, by 3 4: the last is the match, all three agree
    on 3, and of those two on 4."""
    context = [1, 2, 3, 4, 8, 1, 2, 3, 5, 8, 1, 2, 3, 4, 9, 1, 2]
    assert list(tracker(context).sights(3)) == [
        Sight(run=2, num_rivals=3, num_agreeing=3, frequency=3),
        Sight(run=3, num_rivals=3, num_agreeing=2, frequency=2),
        Sight(run=4, num_rivals=2, num_agreeing=1, frequency=1),
    ]


def test_rivals_are_few() -> None:
    sight = next(tracker([1, 2, 3] * 40).sights(1))
    assert sight.num_rivals == sight.num_agreeing == MAX_RIVALS


def test_a_long_run_is_kept_though_its_tail_occurred_again() -> None:
    """The copy of 1 to 9 goes on from the first 9, not from the later `8 9`."""
    source = [*range(1, 14), 50, 7, 8, 9, 51]
    match = tracker([*source, *range(1, KEPT_RUN + 1)])
    for token in range(KEPT_RUN + 1, 10):
        assert match.advance(token) is True
    assert match.proposal(3) == [10, 11, 12]
    short = tracker([*source, 7, 8, 9])
    assert short.proposal(1) == [51]


@given(
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    emitted=st.lists(st.integers(0, 3), max_size=30),
    lengths=st.sampled_from([(1, 3), (2, 3), (2, 5)]),
)
def test_proposals_are_lookups_unless_a_long_run_is_kept(
    prompt: list[int], emitted: list[int], lengths: tuple[int, int]
) -> None:
    config = PromptLookupConfig(ngram_min=lengths[0], ngram_max=lengths[1])
    match = tracker(prompt, config)
    for token in emitted:
        expected = match.proposal(1)
        landed = match.advance(token)
        assert landed == (None if not expected else expected == [token])
        found = find_draft(match.context, replace(config, ngram_min=SHORTEST))
        if match.run < KEPT_RUN:
            assert match.proposal(7)[: len(found)] == found
        assert bool(found) == (match.source is not None)
        for ahead, sight in enumerate(match.sights(7)):
            assert 1 <= sight.num_agreeing <= sight.num_rivals <= MAX_RIVALS
            assert sight.run == min(match.run + ahead, 32)
            assert sight.frequency == match.context.count(match.proposal(7)[ahead])
