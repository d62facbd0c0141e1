"""The self-check fails for each thing that it is there to see."""

from __future__ import annotations

import pytest

from support.lookup_runs import PLAIN, REPLIES, Lookup
from support.scheduler_runs import request
from surefoot.config import SchedulerConfig
from surefoot.scheduling.integrity import check_integrity
from surefoot.scheduling.row import Row

ONE_ROW = SchedulerConfig(max_rows=1)


class Inside(Lookup):
    """One row decodes in the pipeline, another waits; its parts can be handed in changed."""

    def __init__(self) -> None:
        super().__init__(REPLIES, scheduling=ONE_ROW)
        self.add(request(1, PLAIN, 20), request(2, PLAIN, 20))
        while self.scheduler.lookahead is None:
            self.tick()
        roster = self.scheduler._roster
        self.storage = roster.storage
        self.running: list[Row] = list(roster.running.values())
        self.queue: list[Row] = list(roster.waiting)
        self.departed: list[Row] = []

    def check(self) -> None:
        check_integrity(
            self.storage, self.running, self.departed, self.queue, self.scheduler.lookahead
        )


def test_what_the_scheduler_keeps_passes() -> None:
    Inside().check()


def test_a_waiting_row_holds_nothing() -> None:
    inside = Inside()
    inside.queue[0].num_computed = 3
    with pytest.raises(AssertionError, match="row 2 waits with 3 computed"):
        inside.check()
    inside.queue[0].num_computed, inside.queue[0].window = 0, 1
    with pytest.raises(AssertionError, match="row 2 waits with window 1"):
        inside.check()


def test_a_row_that_left_is_named_by_the_step_in_flight() -> None:
    inside = Inside()
    left = inside.running.pop()
    inside.departed = [left]
    inside.check()
    stored = inside.scheduler._lookahead.take()
    with pytest.raises(AssertionError, match="row 1 left and its window was not freed"):
        inside.check()
    inside.scheduler._lookahead.store(stored)


def test_every_running_row_is_in_the_step_in_flight_with_one_position() -> None:
    inside = Inside()
    inside.running[0].num_computed += 1
    with pytest.raises(AssertionError):
        inside.check()
    inside.running[0].num_computed -= 1
    inside.check()


def test_no_ask_is_left_open() -> None:
    inside = Inside()
    inside.running[0].asked = True
    with pytest.raises(AssertionError):
        inside.check()


def test_windows_are_held_by_known_rows_alone() -> None:
    inside = Inside()
    inside.running.clear()
    with pytest.raises(AssertionError):
        inside.check()
