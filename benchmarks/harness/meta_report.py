"""The parts that every report has: what it ran on, how it was started, what it does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.machine import BUSY_CORES
from harness.tables import bullet_list


def heading(title: str, meta: Mapping[str, Any], others_cores: Sequence[float]) -> str:
    host = meta["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in meta["packages"].items())
    lines = [
        f"Machine: {host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB, "
        f"{host['system']}, Python {host['python']}",
        f"Packages: {packages or 'none found'}",
        f"From {meta['began']} to {meta.get('ended', '(unfinished)')}",
        f"Arguments: {shown_arguments(meta['arguments'])}",
        busy_line(meta.get("busy_cores_before"), others_cores),
    ]
    memory = {name: mib for name, mib in meta.get("peak_memory_mib", {}).items() if mib}
    if memory:
        shown = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in memory.items())
        lines.append(f"Peak resident memory, shared file pages included: {shown}")
    return f"# {title}\n\n{disturbed_line(others_cores)}{bullet_list(lines)}"


def disturbed_line(others_cores: Sequence[float]) -> str:
    """Engines lose unlike shares of their speed on a busy machine: some wait for a thread that
    does not run (llama.cpp lost nine tenths where ours lost half)."""
    if not others_cores or sum(others_cores) / len(others_cores) <= BUSY_CORES:
        return ""
    return "**Other work disturbed this run: neither its speeds nor its verdicts count.**\n\n"


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    kept = {k: v for k, v in arguments.items() if v not in (None, False, [], "")}
    return ", ".join(f"{name.replace('_', '-')}={value}" for name, value in kept.items())


def busy_line(before: float | None, during: Sequence[float]) -> str:
    shown = "not measurable" if before is None else f"{before:.2f} cores"
    line = f"Other work on the machine: {shown} before the run"
    if not during:
        return line
    mean, most = sum(during) / len(during), max(during)
    return f"{line}; {mean:.2f} cores on average during requests, {most:.2f} at most"


def servers(meta: Mapping[str, Any]) -> str:
    lines = [f"`{entry['arm']}`: `{entry['command']}`" for entry in meta["servers"]]
    return "## Servers\n\n" + bullet_list(lines)


def limits(metric: str) -> str:
    timed = "the server's own decode time" if metric == "server" else "the client's clock"
    lines = [
        f"Speeds are tokens per second by {timed}; parallel streams are timed by the client. "
        "Time to first token is not compared here.",
        "A total is the time the off server spends on all questions over the time the arm would "
        "need for as many tokens; a question counts by its seconds. Texts may part, so each arm is "
        "timed on the text it wrote.",
        "Intervals are percentile bootstraps over blocks, the questions fixed, or over sittings "
        "(new servers each) where there are five: they cover this machine's noise, and only the "
        "latter what processes of one build differ by; not the choice of questions, and not other "
        "models, processors or loads.",
        "Every prompt was read once by every server before its first block, so a prompt cache, "
        "where there is one, was warm for all arms.",
        "All servers of the comparison are in memory at once; only one is asked at a time.",
    ]
    return "## What this does not show, and how it was reckoned\n\n" + bullet_list(lines)
