"""Whether a server has come to rest: what its `/metrics` page says it still holds."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from harness.bad_requests import request_bytes
from harness.raw_http import RawReply, exchange

HELD = (
    "surefoot_rows_open",
    "surefoot_requests_running",
    "surefoot_requests_waiting",
    'surefoot_kv_blocks{state="held"}',
    "surefoot_kv_blocks_reserved",
)
"""Gauges that are 0 when nothing is held for any client."""
SERVER_ERROR = re.compile(r'status="5(?!03)\d\d"')
POLL_S = 0.1

Samples = Mapping[str, float]


def samples_of(page: str) -> dict[str, float]:
    """Name with labels -> value, of every sample on a metrics page."""
    lines = (line.rpartition(" ") for line in page.splitlines() if line and line[0] != "#")
    return {name: float(value) for name, _, value in lines}


def get(url: str, path: str) -> RawReply:
    return exchange(url, request_bytes("GET", path, {}, b""), cut=False)


def metrics(url: str) -> dict[str, float]:
    return samples_of(get(url, "/metrics").body.decode())


def held(samples: Samples) -> dict[str, float]:
    """What is still held, by gauge; empty at rest."""
    return {name: samples[name] for name in HELD if samples.get(name)}


def settle(url: str, timeout_s: float) -> dict[str, float]:
    """Wait for rest, for so long at most. The samples then; see `held` for what remains."""
    deadline = time.monotonic() + timeout_s
    samples = metrics(url)
    while held(samples) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        samples = metrics(url)
    return samples


def server_errors(samples: Samples) -> float:
    """Requests answered with a 5xx that is not 503, by the server's own count."""
    return sum(value for name, value in samples.items() if SERVER_ERROR.search(name))
