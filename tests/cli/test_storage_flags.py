"""KV memory on the command line: what the flags mean in blocks."""

from __future__ import annotations

import pytest

from surefoot.app.kv_plan import (
    StorageBackend,
    StorageOptions,
    StoragePlan,
    parse_budget,
    plan_storage,
    storage_options,
)
from surefoot.errors import ConfigError

DENSE, PAGED = StorageBackend.DENSE, StorageBackend.PAGED
PER_TOKEN = 1000
WINDOW = 64 + 1
"""Blocks of one window of 1,024 tokens; 16,000 bytes each."""


def plan(options: StorageOptions, free: int | None = None) -> StoragePlan:
    return plan_storage(options, PER_TOKEN, 1024, 4, free)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("auto", "auto"),
        (" None ", "none"),
        ("1000000", 1_000_000),
        ("8G", 8_000_000_000),
        ("512 MB", 512_000_000),
        ("1.5gib", 1_610_612_736),
        ("64k", 64_000),
        ("2Ki", 2048),
    ],
)
def test_a_budget_is_bytes_or_a_word(text: str, budget: int | str) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "much", "-1", "8T", "1e9", "8 G B", "\u0661G"])
def test_other_budgets_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="--kv-cache-budget is") as raised:
        parse_budget(text)
    assert raised.value.param == "kv_cache_budget"


@pytest.mark.parametrize(
    ("given", "parallel", "backend"),
    [(None, 1, DENSE), (None, 2, PAGED), (DENSE, 4, DENSE), (PAGED, 1, PAGED)],
)
def test_paged_is_for_several_rows(
    given: StorageBackend | None, parallel: int, backend: StorageBackend
) -> None:
    assert storage_options(given, "auto", True, parallel) == StorageOptions(backend, "auto", True)


@pytest.mark.parametrize(
    ("free", "total", "reason"),
    [
        (None, 8 * WINDOW, "does not tell"),
        (100 * 32_000, 100, "half of the free memory"),
        (WINDOW * 32_000 - 1, WINDOW, "more than half"),
        (10**9, 8 * WINDOW, "less than half"),
    ],
)
def test_auto_is_half_of_what_is_free_within_reason(
    free: int | None, total: int, reason: str
) -> None:
    made = plan(StorageOptions(PAGED, "auto"), free)
    assert (made.total, made.num_blocks) == (total, total)
    assert reason in made.reason
    assert made.summary().startswith("storage: paged, prompts that begin alike share blocks; up to")
    assert f"{16 * total:,} tokens" in made.summary()


def test_a_pool_takes_as_much_as_all_windows_where_there_is_no_limit() -> None:
    assert plan(StorageOptions(PAGED, "none")) == StoragePlan(None, 4 * WINDOW, 16_000, "no limit")
    assert plan(StorageOptions(DENSE, "none")) == StoragePlan(None, 0, 16_000, "no limit")


def test_without_a_prompt_cache_there_is_no_pool() -> None:
    made = plan(StorageOptions(PAGED, "auto", prompt_cache=False))
    assert (made.backend, made.total, made.num_blocks) == (DENSE, 4 * WINDOW, 0)
    assert made.properties() == {
        "decode_storage_backend": "dense",
        "kv_cache_budget": 4 * WINDOW * 16_000,
        "block_tokens": 16,
        "prompt_cache": False,
    }


def test_a_budget_below_one_window_is_refused_with_both_numbers() -> None:
    assert plan(StorageOptions(PAGED, WINDOW * 16_000)).total == WINDOW
    with pytest.raises(ConfigError, match=r"is 1\.0 MB; one request of 1,024 tokens takes 1\.0 MB"):
        plan(StorageOptions(PAGED, WINDOW * 16_000 - 1))
