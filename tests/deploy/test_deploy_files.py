"""The dashboard and the unit name only what the program has."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import typer.main
from prometheus_client.parser import text_string_to_metric_families

from support.server_fakes import Harness, say
from surefoot.cli.program import app
from surefoot.runtime.loop import LoopStats
from surefoot.server.serve import END_S

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SUFFIXES = ("_total", "_bucket")


@dataclass
class Exported:
    """What a server shows after a request: metric name -> its label names."""

    labels: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        harness = Harness(say("OK"), loop_counts=LoopStats)
        harness.chat()
        for family in text_string_to_metric_families(harness.metrics().decode()):
            for sample in family.samples:
                self.labels.setdefault(sample.name, set()).update(sample.labels)


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    return Exported().labels


def family_of(sample: str) -> str:
    return re.sub("_(total|bucket|count|sum)$", "", sample)


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_every_metric_of_the_dashboard_is_exported_and_every_exported_one_is_shown(
    exported: dict[str, set[str]],
) -> None:
    used = {name for text in expressions() for name in re.findall(r"surefoot_\w+", text)}
    assert used <= exported.keys()
    assert {family_of(name) for name in used} == {family_of(name) for name in exported}


def test_every_label_of_the_dashboard_is_exported(exported: dict[str, set[str]]) -> None:
    for text in expressions():
        labels = {
            name for group in re.findall(r" by \(([^)]+)\)", text) for name in group.split(", ")
        }
        assert labels <= set().union(*(exported[n] for n in re.findall(r"surefoot_\w+", text)))


def test_counters_are_shown_as_rates_and_gauges_as_they_are(
    exported: dict[str, set[str]],
) -> None:
    for text in expressions():
        for name in re.findall(r"surefoot_\w+", text):
            assert (f"rate({name}" in text) is name.endswith(SUFFIXES), text


def test_the_page_of_metrics_names_every_metric(exported: dict[str, set[str]]) -> None:
    rows = re.findall(r"^\| `(surefoot_\w+)", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    assert len(rows) == len(set(rows))
    assert {family_of(name) for name in rows} == {family_of(name) for name in exported}


def test_no_two_panels_overlap_and_no_id_is_used_twice() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)


@pytest.fixture(scope="module")
def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    text = (ROOT / "deploy" / "surefoot.service").read_text().replace("\\\n", " ")
    parser.read_string(text)
    return parser["Service"]


def test_the_unit_uses_flags_that_exist(unit: configparser.SectionProxy) -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {name for parameter in serve.params for name in parameter.opts}
    program, command, *arguments = shlex.split(unit["ExecStart"])
    assert (program, command) == ("/opt/surefoot/bin/surefoot", "serve")
    assert arguments[::2], "flags and values alternate"
    assert set(arguments[::2]) <= known


def test_the_unit_waits_for_the_drain(unit: configparser.SectionProxy) -> None:
    arguments = shlex.split(unit["ExecStart"])
    drain = float(arguments[arguments.index("--drain-timeout") + 1])
    assert float(unit["TimeoutStopSec"]) > drain + END_S
    assert unit["KillSignal"] == "SIGTERM"


def test_the_unit_gives_nothing_away(unit: configparser.SectionProxy) -> None:
    yes = ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictNamespaces")
    assert [unit[name] for name in yes] == ["true"] * len(yes)
    assert (unit["ProtectSystem"], unit["CapabilityBoundingSet"]) == ("strict", "")
    assert unit["User"] == "surefoot"
