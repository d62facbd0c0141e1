"""A small flood on every run; `test_flood_full` and `benchmarks/flood.py` send the whole one."""

from __future__ import annotations

import json
import random

import pytest

from harness.bad_requests import KINDS, NO_REPLY, bad_request
from harness.bad_values import (
    CHAT_PATH,
    COMPLETION_PATH,
    FIELDS,
    NEVER_VALID,
    SOMETIMES_VALID,
    base_fields,
    written,
)
from harness.flooding import STAGES, Tally, Visitor, in_threads, send_bad
from support.flood_runs import assert_clean, flooded_script
from surefoot.server.limits import RequestLimits
from surefoot.server.schema import ChatBody, CompletionBody, parse_chat, parse_completion
from surefoot.server.unsupported import SILENT

NUM_BAD, NUM_VISITORS, NUM_THREADS = 400, 80, 6


def test_bad_requests_get_what_they_deserve() -> None:
    tally = Tally()
    with flooded_script() as live:
        in_threads(lambda seed: send_bad(live.url, seed, tally), range(NUM_BAD), NUM_THREADS)
        assert_clean(live)
    assert tally.num_faults == 0, tally.faults
    assert tally.server_errors == 0
    assert tally.counts.total() == NUM_BAD
    assert set(tally.by_status) >= {NO_REPLY, 200, 400, 404, 405, 415, 431}


def test_clients_that_leave_at_any_moment_end_their_rows_once() -> None:
    tally = Tally()
    with flooded_script() as live:

        def visit(seed: int) -> None:
            Visitor(live.url, seed, max_prompt=100, max_tokens=120).visit(tally)

        in_threads(visit, range(NUM_VISITORS), NUM_THREADS)
        assert_clean(live)
        assert 0 < live.account.num_cancelled < len(live.account.accepted)
    assert tally.num_faults == 0, tally.faults
    assert {kind for kind, _ in tally.counts} == {f"leaves: {stage}" for stage in STAGES}


def test_every_field_of_both_routes_is_put_wrong() -> None:
    named = SILENT | {"unknown"}
    assert set(FIELDS[CHAT_PATH]) == {*ChatBody.model_fields, *named}
    assert set(FIELDS[COMPLETION_PATH]) == {*CompletionBody.model_fields, *named}


def test_every_kind_is_among_the_first_four_hundred() -> None:
    kinds = {bad_request(seed).kind for seed in range(NUM_BAD)}
    bodies = {f"body: {kind}" for kind in (*SOMETIMES_VALID, *NEVER_VALID)}
    assert bodies <= kinds
    assert len(kinds) == len(bodies) + len(KINDS) - 1
    assert bad_request(7) == bad_request(7)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_spoilt_was_good(seed: int) -> None:
    """The bodies that the flood starts from are valid, so what is refused is what was done."""
    rng = random.Random(seed)
    limits = RequestLimits()
    chat = dict_of(rng, CHAT_PATH)
    assert parse_chat(chat, limits).max_tokens == chat["max_tokens"]
    assert parse_completion(dict_of(rng, COMPLETION_PATH), limits).num_choices == 1


def dict_of(rng: random.Random, path: str) -> dict[str, object]:
    body: dict[str, object] = json.loads(written(base_fields(rng, path)))
    return body
