"""StepCosts: the four GB10 tables, buckets, conversions, JSON, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import ConfigError
from surefoot.speculation.costs import CostBucket, StepCosts, load_costs, save_costs

TABLES = Path(__file__).parent.parent / "data" / "costs"


def bucket(context: int | None, synchronous: float = 1.2, **verify: float) -> CostBucket:
    widths = {int(name[1:]): seconds for name, seconds in verify.items()} or {1: 1.2, 2: 1.5}
    return CostBucket(context, 1.0, synchronous, widths)


@pytest.mark.parametrize(
    ("name", "synchronous", "width_2", "width_8", "round_8"),
    [
        ("gb10-qwen3-1.7b-4bit", 6343 / 5174, 7112 / 5174, 20250 / 5174, 22588 / 5174),
        ("gb10-qwen3-4b-4bit", 12842 / 11566, 14505 / 11566, 45642 / 11566, 48194 / 11566),
        ("gb10-qwen3-8b-4bit", 20397 / 18998, 21941 / 18998, 62687 / 18998, 65485 / 18998),
        (
            "gb10-llama-3.1-8b-instruct-4bit",
            20311 / 18773,
            21823 / 18773,
            55426 / 18773,
            58502 / 18773,
        ),
    ],
)
def test_gb10_tables_in_plain_steps(
    name: str, synchronous: float, width_2: float, width_8: float, round_8: float
) -> None:
    costs = load_costs(TABLES / f"{name}.json")
    assert costs.name == name
    assert costs.relative_synchronous(5000) == pytest.approx(synchronous)
    assert costs.relative(2) == pytest.approx(width_2)
    assert costs.relative(8, 700) == pytest.approx(width_8)
    # Width 8 and the overlap of two synchronous ticks: 2 * (synchronous - pipelined).
    round_costs = costs.round_costs(256, 7, 2.0)
    assert len(round_costs) == 9
    assert round_costs[0] == 0.0
    assert round_costs[8] == pytest.approx(round_8)


def test_round_costs_add_the_lost_overlap_to_every_width() -> None:
    table = bucket(None, w1=1.25, w2=1.5, w3=2.0)
    assert table.round_costs(2, 0.0) == pytest.approx((0.0, 1.25, 1.5, 2.0))
    assert table.round_costs(2, 2.0) == pytest.approx((0.0, 1.65, 1.9, 2.4))


def test_a_lost_overlap_is_never_negative() -> None:
    table = bucket(None, synchronous=0.9, w1=1.0, w2=1.5)
    assert table.round_costs(1, 2.0) == (0.0, 1.0, 1.5)


@pytest.mark.parametrize(
    ("width", "cost"),
    [(1, 1.5), (2, 1.5), (3, 2.0), (4, 2.5), (5, 2.75), (6, 3.0), (8, 3.5), (9, 3.5), (64, 3.5)],
)
def test_widths_between_and_outside_the_measured_ones(width: int, cost: float) -> None:
    assert bucket(None, w2=1.5, w4=2.5, w8=3.5).relative(width) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("context", "nearest"),
    [(0, 256), (256, 256), (639, 256), (640, 256), (641, 1024), (2560, 1024), (2561, 4096),
     (100_000, 4096)],
)  # fmt: skip
def test_the_nearest_bucket(context: int, nearest: int) -> None:
    costs = StepCosts("here", "test", (bucket(4096), bucket(256), bucket(1024)))
    assert costs.bucket_for(context).context == nearest


def test_json_there_and_back(tmp_path: Path) -> None:
    costs = StepCosts("here", "a test", (bucket(256, w1=1.0, w10=4.0, w2=1.5), bucket(1024)))
    path = tmp_path / "costs.json"
    save_costs(costs, path)
    assert load_costs(path) == costs
    form = json.loads(path.read_text())
    assert set(form) == {"name", "source", "buckets"}
    assert form["buckets"][0]["verify_s"] == {"1": 1.0, "2": 1.5, "10": 4.0}
    assert list(form["buckets"][0]) == ["context", "pipelined_s", "synchronous_s", "verify_s"]


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_a_saved_table_has_the_form_it_was_loaded_from(path: Path) -> None:
    assert json.loads(load_costs(path).to_json()) == json.loads(path.read_text())


def table(**changes: Any) -> dict[str, Any]:
    """One valid bucket, with changes."""
    return {
        "context": None,
        "pipelined_s": 0.01,
        "synchronous_s": 0.012,
        "verify_s": {"1": 0.012, "2": 0.015},
    } | changes


@pytest.mark.parametrize(
    ("broken", "param", "said"),
    [
        ("{", "costs", "not JSON"),
        ("[]", "costs", "costs is 'list'; it must be a JSON object"),
        ({"buckets": [table()]}, "name and source", "it must be text"),
        ({"name": "x"}, "buckets", "buckets is None; it must be a list"),
        ({"name": "x", "buckets": []}, "buckets", "at least one bucket"),
        ({"name": "x", "buckets": [3]}, "buckets", "list of objects"),
        ({"name": "x", "buckets": [table(context=1.5)]}, "context", "context is 1.5"),
        ({"name": "x", "buckets": [table(context=-1)]}, "context", "context is -1"),
        ({"name": "x", "buckets": [table(), table()]}, "buckets", "alone if its context is null"),
        ({"name": "x", "buckets": [table(context=8), table(context=8)]}, "buckets", "distinct"),
        ({"name": "x", "buckets": [table(pipelined_s=0)]}, "pipelined_s", "more than 0"),
        ({"name": "x", "buckets": [table(pipelined_s=None)]}, "pipelined_s", "number of seconds"),
        ({"name": "x", "buckets": [table(synchronous_s="1")]}, "synchronous_s", "is '1'"),
        ({"name": "x", "buckets": [table(synchronous_s=True)]}, "synchronous_s", "is True"),
        ({"name": "x", "buckets": [table(verify_s=[])]}, "verify_s", "object of seconds"),
        ({"name": "x", "buckets": [table(verify_s={})]}, "verify_s", "at least one width"),
        ({"name": "x", "buckets": [table(verify_s={"a": 1})]}, "verify_s", "verify_s is 'a'"),
        ({"name": "x", "buckets": [table(verify_s={"0": 1})]}, "verify_s", "verify_s is 0"),
        ({"name": "x", "buckets": [table(verify_s={"2": -1})]}, "verify_s[2]", "is -1.0"),
        ({"name": "x", "buckets": [table(verify_s={"9" * 5000: 1})]}, "verify_s", "few digits"),
        ({"name": "x", "buckets": [table(pipelined_s=10**400)]}, "pipelined_s", "is inf"),
        ({"name": "x", "buckets": [table(pipelined_s=1e-300)]}, "pipelined_s", "is 1e-300"),
        ({"name": "x", "buckets": [table(synchronous_s=1e300)]}, "synchronous_s", "1e-09 and"),
        ("[" * 200_000, "costs", "not JSON"),
        (f'{{"name": "x", "buckets": {"9" * 5000}}}', "costs", "not JSON"),
    ],
)
def test_a_broken_table_is_refused_by_field_value_and_limit(
    broken: Any, param: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(broken if isinstance(broken, str) else json.dumps(broken))
    with pytest.raises(ConfigError) as caught:
        load_costs(path)
    assert caught.value.param == param
    assert said in caught.value.message
    assert str(path) in caught.value.message


def test_infinite_seconds_are_refused() -> None:
    with pytest.raises(ConfigError, match="finite"):
        StepCosts.from_json(
            '{"name": "x", "buckets": [{"context": null, "pipelined_s": Infinity,'
            ' "synchronous_s": 1, "verify_s": {"1": 1}}]}'
        )


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.json"):
        load_costs(path)
