"""The flags of `surefoot serve` that set limits, and what a wrong value is told."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from surefoot.cli.flags.limits import (
    LIMIT_FLAGS,
    SECTIONS,
    LimitFlag,
    Unit,
    Values,
    limits_from,
    with_limit_flags,
)
from surefoot.cli.flags.names import FLAG_NAMES, in_flags
from surefoot.cli.program import run
from surefoot.errors import ConfigError
from surefoot.server.limits import ServerConfig

DOCS = Path(__file__).parents[2] / "docs" / "limits.md"

WITHOUT_FLAG = {"keepalive_s", "status_wait_s"}
"""No limits: how often a silent stream shows life, and how long its headers wait."""


def parsed(*arguments: str) -> Values:
    """What a command with limit flags gets for these."""
    seen: list[Values] = []
    app = typer.Typer()

    @app.command()
    @with_limit_flags
    def command(limits: Values) -> None:
        seen.append(limits)

    app(list(arguments), standalone_mode=False)
    return seen[0]


def test_without_flags_the_limits_are_the_servers_own() -> None:
    limits, own = limits_from(parsed()), ServerConfig()
    assert (limits.body, limits.request) == (own.body, own.request)
    assert (limits.reply, limits.connection) == (own.reply, own.connection)


def test_every_limit_has_one_flag() -> None:
    known = {each.name for section in SECTIONS for each in fields(section)}
    named = [each.field for each in LIMIT_FLAGS]
    assert len(named) == len(set(named))
    assert set(named) == known - WITHOUT_FLAG


@pytest.mark.parametrize("limit", LIMIT_FLAGS, ids=lambda limit: limit.flag)
def test_a_flag_sets_its_field_and_no_other(limit: LimitFlag) -> None:
    before, text = parsed(), "48.5" if limit.unit is Unit.SECONDS else "16"
    wanted = 48.5 if limit.unit is Unit.SECONDS else 16
    if limit.unit is Unit.BYTES:
        text, wanted = "9KiB", 9 * 1024
    assert parsed(limit.flag, text) == {**before, limit.field: wanted}


@pytest.mark.parametrize("limit", LIMIT_FLAGS, ids=lambda limit: limit.flag)
def test_a_value_below_the_range_names_the_flag(
    limit: LimitFlag, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "-m", "/no/such/model.gguf", f"{limit.flag}=-1"]) == 2
    error = capsys.readouterr().err
    value = "-1.0" if limit.unit is Unit.SECONDS else "-1"
    bytes_said = f"Invalid value for '{limit.flag}': '-1' is no number of bytes"
    said = f"{limit.flag} is {value}; it must be "
    assert error.startswith(f"surefoot: error: {bytes_said if limit.unit is Unit.BYTES else said}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--max-body-size", "5"], "--max-body-size is 5; it must be at least 1024"),
        (
            ["--max-body-size", "1G"],
            "--max-buffered-bodies is 134217728; it must be at least 1000000000",
        ),
        (["--max-json-depth", "500"], "--max-json-depth is 500; it must be between 4 and 200"),
        (
            ["--max-body-size", "x"],
            "Invalid value for '--max-body-size': 'x' is no number of bytes such as 512KiB or"
            " 8MiB.",
        ),
        (
            ["--header-timeout", "nan"],
            "--header-timeout is nan; it must be between 0.01 and 604800",
        ),
        (["--reply-timeout", "inf"], "--reply-timeout is inf; it must be between 0 and 604800"),
        (["--drain-timeout", "inf"], "--drain-timeout is inf; it must be between 0 and 604800"),
        (["--queue-timeout", "nan"], "--queue-timeout is nan; it must be at least 0"),
        (["--port", "65536"], "--port is 65536; it must be between 0 and 65535"),
        (["--ctx", "1"], "--ctx is 1; it must be at least 2"),
        (["--context-length=-5"], "--ctx is -5; it must be at least 2"),
        (["--threads", "0"], "--threads is 0; it must be between 1 and 1024"),
        (["--max-queue-depth", "-1"], "--max-queue-depth is -1; it must be at least 0"),
        (["--prefill-chunk-size", "0"], "--prefill-chunk-size is 0; it must be at least 1"),
        (["--alias", ""], "--alias is ''; it must be 1 to 200 printable characters"),
        (["--cors-origin", "a.b"], "--cors-origin is 'a.b'; it must be scheme://host[:port] or *"),
        (
            ["--cors-origin", "*", "--cors-origin", "http://a"],
            "--cors-origin is * beside 1 more; it must stand alone",
        ),
        (
            ["--allowed-host", "a:80"],
            "--allowed-host is 'a:80'; it must be a name or an address without a port",
        ),
        (
            ["--host", "999.1.1.1"],
            "--host '999.1.1.1' is not an address that can be listened on",
        ),
        (
            ["--api-key", "secret "],
            "--api-key: an API key is empty or has a blank at its edge: a header cannot carry it",
        ),
        (
            ["--api-key", "sec\nret"],
            "--api-key: an API key holds a control character: a header cannot carry it",
        ),
        (
            ["--api-key-file", "/no/such/file"],
            "--api-key-file is /no/such/file: No such file or directory",
        ),
    ],
)
def test_a_wrong_value_is_one_line_with_the_flag_and_code_2(
    flags: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "-m", "/no/such/model.gguf", *flags]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"surefoot: error: {line}\n")


@pytest.mark.parametrize(
    ("message", "param", "said"),
    [
        ("ngram_min is 4; at most 3", "ngram_min", "--prompt-lookup-ngram-min is 4; at most 3"),
        ("chunk_busy is 0", "chunk_busy", "--prefill-chunk-size is 0"),
        ("--ctx is 9; it must be 8", "capacity", "--ctx is 9; it must be 8"),
        ("something else", "unknown", "something else"),
        ("something else", None, "something else"),
    ],
)
def test_messages_in_flags(message: str, param: str | None, said: str) -> None:
    assert in_flags(ConfigError(message, param=param), FLAG_NAMES) == said


def test_the_page_of_limits_shows_every_flag_with_its_default() -> None:
    rows = re.findall(r"^\| .* \| `(--[a-z-]+)` \| ([^|]+) \|", DOCS.read_text(), re.MULTILINE)
    shown = {flag: default.strip() for flag, default in rows}
    for limit in LIMIT_FLAGS:
        unit = " s" if limit.unit is Unit.SECONDS else ""
        assert shown.get(limit.flag) == limit.shown_default + unit, limit.flag
