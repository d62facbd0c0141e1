"""The scripted engine with faults built in: it goes wrong over rows whose prompt asks for it."""

from __future__ import annotations

import threading
from dataclasses import replace
from enum import StrEnum
from typing import Any

from support.fakes import ScriptedEngine, ScriptedHandle
from surefoot.core.step import RowPlan, RowResult, StepPlan

MARK = ord("!")
"""Rows whose first token this is are the ones that go wrong."""
DETAIL = "injected: /secret/path"
"""What a fault says of itself; no client may see it."""


class Fault(StrEnum):
    """`FORWARD` to `NOTHING` are a row's; `SUBMIT` and `RESULT` are the end of the engine; `HANG`
    lasts until `release()`."""

    FORWARD = "the forward fails"
    NAN = "the logits are not finite"
    MEMORY = "the forward gets no memory"
    LENGTH = "an answer of the wrong length"
    NOTHING = "no answer"
    SUBMIT = "submit raises"
    RESULT = "result raises"
    HANG = "the step hangs"


class FaultyEngine(ScriptedEngine):
    """Goes wrong by `fault` in every forward that brings a marked row to position `at` or more."""

    def __init__(self, fault: Fault, at: int, **scripted: Any) -> None:
        super().__init__(**scripted)
        self._kind = fault
        self._at = at
        self._released = threading.Event()
        self.hanging = threading.Event()

    def release(self) -> None:
        """The step that hangs ends; no other hangs after it."""
        self._released.set()

    def submit(self, plan: StepPlan) -> ScriptedHandle:
        handle = super().submit(plan)
        if not any(self._is_struck(row) for row in plan.rows):
            return handle
        if self._kind is Fault.SUBMIT:
            raise RuntimeError(DETAIL)
        if self._kind is Fault.RESULT:
            return replace(handle, outcome=RuntimeError(DETAIL))
        if self._kind is Fault.HANG:
            self.hanging.set()
            return replace(handle, ready=self._released)
        if self._kind is Fault.NOTHING:
            assert not isinstance(handle.outcome, Exception)
            kept = [r for r in plan.rows if not self._is_struck(r)]
            ids = {row.row_id for row in kept}
            rows = tuple(row for row in handle.outcome.rows if row.row_id in ids)
            return replace(handle, outcome=replace(handle.outcome, rows=rows))
        return handle

    def _run_row(self, plan: StepPlan, row: RowPlan) -> RowResult:
        result = super()._run_row(plan, row)
        if not self._is_struck(row):
            return result
        if self._kind is Fault.LENGTH:
            return replace(result, tokens=(*result.tokens, 0))
        if self._kind in (Fault.FORWARD, Fault.NAN, Fault.MEMORY):
            memory = self._kind is Fault.MEMORY
            return RowResult(row.row_id, (), error=DETAIL, out_of_memory=memory)
        return result

    def _is_struck(self, row: RowPlan) -> bool:
        return self.windows[row.window].tokens[:1] == [MARK] and row.end >= self._at
