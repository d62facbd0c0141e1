"""The soak's parts: what it asks, what it takes for wrong, and when it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import soak as script
from harness.bad_values import CHAT_PATH, COMPLETION_PATH
from harness.checks import Check, check_table, none_of
from harness.known_requests import Known, ask, joined, known_requests
from harness.runs import RunFolder
from harness.settling import held, samples_of, server_errors
from harness.soak_watch import Sample, thirds
from harness.soaking import Findings, Soaker, reference
from harness.sse import DONE, StreamError
from support.flood_runs import flooded_script
from surefoot.server.limits import RequestLimits
from surefoot.server.schema import parse_chat, parse_completion

KNOWN = [
    Known(0, COMPLETION_PATH, {"prompt": "hi", "max_tokens": 12, "temperature": 0, "n": 2}),
    Known(1, CHAT_PATH, {"messages": [{"role": "user", "content": "hi"}], "seed": 3}),
]


def test_known_requests_are_valid_and_repeat_themselves() -> None:
    requests = known_requests(60, seed=4, max_tokens=20)
    for known in requests:
        parse = parse_chat if known.path == CHAT_PATH else parse_completion
        parsed = parse(dict(known.body), RequestLimits())
        assert parsed.max_tokens is not None
        assert parsed.max_tokens <= 20
        assert parsed.temperature == 0 or parsed.seed is not None
    again = known_requests(60, seed=4, max_tokens=20)
    assert [known.body for known in again] == [known.body for known in requests]
    assert {known.path for known in requests} == {CHAT_PATH, COMPLETION_PATH}


def test_streams_are_joined_choice_by_choice() -> None:
    def chunk(index: int, text: str, end: str = "null") -> str:
        return f'{{"choices": [{{"index": {index}, "text": "{text}", "finish_reason": {end}}}]}}'

    ends = [chunk(1, "", '"stop"'), chunk(0, "", '"length"'), DONE]
    assert joined([chunk(0, "a"), chunk(1, "x"), chunk(0, "b"), *ends]) == (
        ("ab", "length"),
        ("x", "stop"),
    )
    for broken in (ends[:-1], [*ends[1:], chunk(2, "c")], ['{"error": {"code": "timeout"}}']):
        with pytest.raises(StreamError):
            joined(broken)


def test_a_quiet_server_gives_nothing_to_find(tmp_path: Path) -> None:
    findings = Findings()
    with flooded_script() as live:
        known = reference(live.url, KNOWN)
        assert ask(live.url, KNOWN[0], stream=True) == known[KNOWN[0]]
        soaker = Soaker(live.url, known, RunFolder(tmp_path, "soak"), findings, max_prompt=100)
        soaker.run(seed=1, seconds=0.5)
        checks = script.rest_checks(live.url, findings)
        checks += script.text_checks(live.url, known, findings, "afterwards")
    assert findings.done.total() > 0
    assert [check for check in checks if not check.right] == []


def test_a_text_that_parts_is_found(tmp_path: Path) -> None:
    findings = Findings()
    with flooded_script() as live:
        wrong = {KNOWN[0]: (("another", "stop"),) * 2}
        Soaker(live.url, wrong, RunFolder(tmp_path, "soak"), findings).run(seed=1, seconds=0.5)
        (check,) = script.text_checks(live.url, wrong, findings, "afterwards")
    assert (check.found, check.right) == ("1", False)
    assert len(findings.wrong) == findings.done["whole"] + findings.done["streamed"] + 1


def samples(*resident: float) -> list[Sample]:
    return [Sample(float(i), mib, mib / 2, 9, 20) for i, mib in enumerate(resident)]


@pytest.mark.parametrize(
    ("last", "right"), [(100.0, True), (108.0, True), (108.5, False), (60.0, True)]
)
def test_memory_may_grow_so_much(last: float, right: bool) -> None:
    seen = samples(50, 50, 100, 100, last, last)
    assert thirds(seen, lambda each: each.resident_mib) == (50, 100, last)
    rest = Sample(0, 50, 25, 9, 20)
    memory, files = script.memory_checks(seen, rest, Sample(0, 50, 25, 9, 23))
    assert memory.right is right
    assert files == Check("open files at rest", "20 before, 23 after", False)
    assert script.memory_checks(seen[:2], rest, rest) == []


def test_what_a_metrics_page_says() -> None:
    page = (
        "# TYPE surefoot_rows_open gauge\nsurefoot_rows_open 2.0\nsurefoot_requests_running 0.0\n"
        'surefoot_kv_blocks{state="held"} 3.0\nsurefoot_kv_blocks{state="kept"} 9.0\n'
        'surefoot_http_requests_total{route="other",status="500"} 1.0\n'
        'surefoot_http_requests_total{route="other",status="503"} 4.0\n'
    )
    seen = samples_of(page)
    assert held(seen) == {"surefoot_rows_open": 2.0, 'surefoot_kv_blocks{state="held"}': 3.0}
    assert server_errors(seen) == 1.0


def test_the_table_says_whether_everything_held() -> None:
    right, wrong = none_of("faults", 0), none_of("leaks", 2)
    assert check_table([right]).startswith("Everything held.\n")
    table = check_table([right, wrong])
    assert table.startswith("**Something did not hold.**\n")
    assert "| leaks  |     2 | **no** |" in table


def test_an_exit_status_and_the_log_are_read(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("INFO fine\nERROR surefoot: a forward failed\n  Traceback (most recent)\n")
    assert script.end_checks(0, log) == [
        none_of("errors in the server's log", 2),
        Check("the server's exit status", "0", True),
    ]
