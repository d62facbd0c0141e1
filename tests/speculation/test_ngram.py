"""The lookup: worked examples, and the index equal to the plain scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.lookup import NgramIndex, find_draft


def indexed(context: list[int], config: PromptLookupConfig) -> list[int]:
    index = NgramIndex(config)
    index.extend(context)
    return index.find(context, config)


@pytest.mark.parametrize(
    ("context", "draft"),
    [
        ([], []),
        ([1], []),
        ([1, 2], []),
        ([1, 2, 1], []),
        ([1, 2, 1, 2], [1, 2]),
        ([1, 2, 3, 9, 1, 2], [3, 9, 1, 2]),
        # The longer suffix wins over a more recent shorter one.
        ([7, 1, 2, 5, 8, 1, 2, 6, 7, 1, 2], [5, 8, 1, 2, 6, 7, 1]),
        # The most recent of two equal suffixes.
        ([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], [5, 1, 2, 3]),
        # An occurrence may overlap the suffix; one token follows it.
        ([4, 4, 4], [4]),
        ([4, 4, 4, 4, 4, 4], [4]),
        ([1, 2, 1, 2, 1], [2, 1]),
        ([1, 2, 1, 2, 1, 2], [1, 2]),
        # No more than max_draft.
        ([1, 2, 10, 11, 12, 13, 14, 15, 16, 17, 1, 2], [10, 11, 12, 13, 14, 15, 16]),
        # A last token that occurred before is not enough with ngram_min 2.
        ([5, 1, 2, 3, 5], []),
    ],
)
def test_worked_examples(context: list[int], draft: list[int]) -> None:
    config = PromptLookupConfig()
    assert find_draft(context, config) == draft
    assert indexed(context, config) == draft


def test_one_token_suffixes() -> None:
    config = PromptLookupConfig(ngram_max=1, ngram_min=1, max_draft=2)
    assert find_draft([5, 1, 2, 3, 5], config) == [1, 2]
    assert indexed([5, 1, 2, 3, 5], config) == [1, 2]


CONFIGS = st.integers(1, 5).flatmap(
    lambda ngram_max: st.builds(
        PromptLookupConfig,
        ngram_max=st.just(ngram_max),
        ngram_min=st.integers(1, ngram_max),
        max_draft=st.integers(1, 9),
    )
)
CONTEXTS = st.one_of(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 40), max_size=60),
    st.integers(0, 60).map(lambda length: [7] * length),
    st.integers(0, 60).map(lambda length: [index % 2 for index in range(length)]),
    st.tuples(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 5)).map(
        lambda parts: parts[0] * parts[1]
    ),
)


@given(context=CONTEXTS, config=CONFIGS, chunks=st.lists(st.integers(0, 7)))
def test_index_equals_scan_at_every_extension(
    context: list[int], config: PromptLookupConfig, chunks: list[int]
) -> None:
    index = NgramIndex(config)
    length = 0
    for chunk in [*chunks, len(context)]:
        length = min(length + chunk, len(context))
        index.extend(context[:length])
        assert index.find(context[:length], config) == find_draft(context[:length], config)


@given(context=CONTEXTS, config=CONFIGS)
def test_one_extension_equals_many(context: list[int], config: PromptLookupConfig) -> None:
    index = NgramIndex(config)
    for length in range(len(context) + 1):
        index.extend(context[:length])
    assert index.find(context, config) == indexed(context, config)


@given(context=CONTEXTS, config=CONFIGS)
def test_entries_are_at_most_context_times_lengths(
    context: list[int], config: PromptLookupConfig
) -> None:
    index = NgramIndex(config)
    index.extend(context)
    lengths = range(config.ngram_min, config.ngram_max + 1)
    assert len(index) <= sum(max(0, len(context) - size) for size in lengths)


def test_entries_of_distinct_tokens() -> None:
    index = NgramIndex(PromptLookupConfig())
    index.extend(list(range(8000)))
    assert len(index) == 7998 + 7997


def test_a_longer_proposal_from_the_same_index() -> None:
    config = PromptLookupConfig(max_draft=1)
    index = NgramIndex(config)
    context = [1, 2, 3, 4, 5, 1, 2]
    index.extend(context)
    assert index.find(context, config) == [3]
    assert index.propose(context, 3) == [3, 4, 5]


def test_a_stale_index_is_a_bug() -> None:
    config = PromptLookupConfig()
    index = NgramIndex(config)
    index.extend([1, 2, 3])
    with pytest.raises(AssertionError):
        index.find([1, 2, 3, 4], config)
    with pytest.raises(AssertionError):
        index.extend([1, 2])
