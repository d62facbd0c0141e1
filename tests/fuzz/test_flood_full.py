"""The whole flood: 20,000 bad requests and 2,000 clients that leave, on the scripted engine."""

from __future__ import annotations

import pytest

from harness.flooding import Tally, Visitor, in_threads, send_bad
from support.flood_runs import assert_clean, flooded_script

NUM_THREADS = 6


@pytest.mark.slow
def test_twenty_thousand_bad_requests_and_no_fault_of_ours() -> None:
    tally = Tally()
    with flooded_script() as live:
        in_threads(lambda seed: send_bad(live.url, seed, tally), range(20_000), NUM_THREADS)
        assert_clean(live)
    assert (tally.num_faults, tally.server_errors) == (0, 0), tally.faults
    assert tally.counts.total() == 20_000


@pytest.mark.slow
def test_two_thousand_clients_that_leave() -> None:
    tally = Tally()
    with flooded_script() as live:

        def visit(seed: int) -> None:
            Visitor(live.url, seed, max_prompt=100, max_tokens=120).visit(tally)

        in_threads(visit, range(2000), NUM_THREADS)
        assert_clean(live)
    assert tally.num_faults == 0, tally.faults
    assert tally.counts.total() == 2000
