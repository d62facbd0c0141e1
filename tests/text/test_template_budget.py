"""What each kind of growth costs, in numbers."""

from __future__ import annotations

import pytest

from surefoot.text.template.budget import RenderBudget, RenderLimitError, RenderLimits


def budget(steps: int = 100, chars: int = 100, num_input_chars: int = 0) -> RenderBudget:
    return RenderBudget(RenderLimits(max_steps=steps, max_chars=chars), num_input_chars)


def test_steps_and_characters_run_out_one_past_the_limit() -> None:
    paid = budget(steps=3, chars=3)
    paid.take_steps(3)
    paid.take_chars(3)
    with pytest.raises(RenderLimitError, match="too many steps"):
        paid.take_steps()
    with pytest.raises(RenderLimitError, match="too much text"):
        paid.take_chars(1)


def test_long_messages_bring_their_own_room() -> None:
    budget(chars=10, num_input_chars=2).take_chars(10 + 2 * 64)
    with pytest.raises(RenderLimitError):
        budget(chars=10, num_input_chars=2).take_chars(11 + 2 * 64)


def test_the_clock_is_read_now_and_then() -> None:
    now = [0.0]
    paid = RenderBudget(RenderLimits(max_steps=10_000, max_seconds=5), 0, lambda: now[0])
    paid.take_steps(1000)
    now[0] = 5.1
    with pytest.raises(RenderLimitError, match="too much time"):
        paid.take_steps(257)


@pytest.mark.parametrize(
    ("value", "steps", "chars"),
    [
        ("abc", 1, 3),
        (["abc", "de"], 3, 5),
        ({"k": ("ab", None)}, 5, 3),
        ([["x", "x"], ["x", "x"]], 7, 4),
        (2.5, 1, 0),
    ],
)
def test_a_tree_costs_a_step_an_item_and_its_characters(
    value: object, steps: int, chars: int
) -> None:
    budget(steps, chars).take_tree(value, printed=True)
    with pytest.raises(RenderLimitError):
        budget(steps - 1, chars).take_tree(value)
    if chars:
        with pytest.raises(RenderLimitError):
            budget(steps, chars - 1).take_tree(value)


def test_numbers_have_a_longest() -> None:
    budget().take_power(2, 32_768)
    budget().take_repeat(1 << 32_000, 1 << 32_000)
    with pytest.raises(RenderLimitError, match="too large a number"):
        budget().take_power(2, 32_769)
    with pytest.raises(RenderLimitError, match="too large a number"):
        budget().take_repeat(1 << 40_000, 1 << 40_000)
    with pytest.raises(RenderLimitError, match="too large a number"):
        budget().take(1 << 65_536)


@pytest.mark.parametrize("pattern", ["%5d", "year 2024: %s", "{:>10}", "{} 123456", "100%", "%.3f"])
def test_formats_of_usual_width_pass(pattern: str) -> None:
    budget().take_format(pattern, [1])


@pytest.mark.parametrize("pattern", ["%1234d", "%.9999f", "%*d", "{:9999}", "{:{}}", "{0:>{1}}"])
def test_wide_formats_are_refused(pattern: str) -> None:
    with pytest.raises(RenderLimitError, match="too wide a format"):
        budget().take_format(pattern, [1])
