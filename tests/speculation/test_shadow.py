"""ShadowProbe: every way to settle."""

import pytest

from surefoot.speculation.governed.probe import ShadowProbe


@pytest.mark.parametrize(
    ("proposal", "emitted", "settled"),
    [
        ((5, 6), [], None),
        ((5, 6), [5], None),
        ((5, 6), [4], False),
        ((5, 6), [5, 6], True),
        ((5, 6), [5, 7], False),
        ((5, 6), [4, 6], False),
        ((5, 6), [5, 6, 9, 9], True),
        ((5, 6, 7, 8), [5, 6, 7], None),
        ((5, 6, 7, 8), [5, 6, 7, 8], True),
        ((5, 6, 7, 8), [5, 6, 0], False),
    ],
)
def test_settle(proposal: tuple[int, ...], emitted: list[int], settled: bool | None) -> None:
    context = [1, 5, 6, 1]
    assert ShadowProbe(len(context), proposal).settle(context + emitted) is settled
