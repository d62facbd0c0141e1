"""Bad requests and clients that leave, by the thousand, against one server over real sockets.

    python benchmarks/flood.py                       # 20,000 and 2,000, the scripted engine
    python benchmarks/flood.py --requests 2000 --disconnects 200 \
        --patience 120 --command "surefoot serve --port {port} --ctx 512"

No model is needed for the first: its server, `tests/support/scripted_server.py`, also says whether
every request it accepted ended exactly once. Each request comes from its seed, so what went wrong
can be sent again. Ends with status 1 if anything did.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.bad_requests import NO_REPLY, post
from harness.bad_values import COMPLETION_PATH
from harness.checks import Check, check_table, none_of
from harness.flooding import Tally, Visitor, in_threads, send_bad
from harness.raw_http import exchange
from harness.runs import RunFolder
from harness.servers import ServerProcess, shown_command
from harness.session import RESULTS, Meta, new_parser, run_session, tell
from harness.settling import held, server_errors, settle
from harness.tables import markdown_table

SCRIPTED = Path(__file__).resolve().parent.parent / "tests" / "support" / "scripted_server.py"
DEFAULT_COMMAND = f"{shlex.quote(sys.executable)} {shlex.quote(str(SCRIPTED))} --port {{port}}"
SETTLE_S = 60.0


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="bad requests to send")
    parser.add_argument("--disconnects", type=int, default=2000, help="clients that leave")
    parser.add_argument("--threads", type=int, default=6, help="clients at once")
    parser.add_argument("--seed", type=int, default=0, help="of the first request")
    parser.add_argument("--max-prompt", type=int, default=100, help="characters of a visitor")
    parser.add_argument("--max-tokens", type=int, default=120, help="tokens of a visitor")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds for a reply")
    parser.add_argument("--command", dest="program", default=DEFAULT_COMMAND, help="of the server")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the run's folder goes")
    parser.add_argument("--name", default="flood", help="how the folder's name begins")
    parser.set_defaults(force=True)  # nothing is timed, so other work may run beside it
    return parser.parse_args(argv)


def flood(args: argparse.Namespace, url: str, bad: Tally, left: Tally) -> None:
    seeds = range(args.seed, args.seed + args.requests)
    tell(f"{args.requests} bad requests")
    in_threads(lambda seed: send_bad(url, seed, bad, args.patience), seeds, args.threads)
    seeds = range(args.seed, args.seed + args.disconnects)
    tell(f"{args.disconnects} clients that leave")

    def visit(seed: int) -> None:
        Visitor(url, seed, args.max_prompt, args.max_tokens).visit(left)

    in_threads(visit, seeds, args.threads)


def checks_over_http(url: str, bad: Tally, left: Tally) -> list[Check]:
    samples = settle(url, SETTLE_S)
    kept = held(samples)
    body = json.dumps({"prompt": "hi", "max_tokens": 3}).encode()
    reply = exchange(url, post(COMPLETION_PATH, body), cut=False)
    return [
        none_of("bad requests answered with a 5xx", bad.server_errors),
        none_of("bad requests answered wrongly", bad.num_faults),
        none_of("clients that left, served wrongly", left.num_faults),
        none_of("5xx but 503, by the server's own count", server_errors(samples)),
        Check("held afterwards", str(kept or "nothing"), not kept),
        Check("a normal request afterwards", str(reply.status), reply.status == 200),
    ]


def account_of(log: str) -> dict[str, Any]:
    """What the scripted server says as it ends: its last line. Empty for another server."""
    last = (log.strip().splitlines() or [""])[-1]
    account: dict[str, Any] = json.loads(last) if last.startswith("{") else {}
    return account


def account_checks(status: int, account: Mapping[str, Any]) -> list[Check]:
    checks = [Check("the server's exit status", str(status), status == 0)]
    if not account:
        return checks
    accepted, once = account["accepted"], account["ended exactly once"]
    return [
        *checks,
        Check("rows accepted, and ended exactly once", f"{accepted}, {once}", accepted == once),
        Check("the scheduler's own `check()`", account["check"], account["check"] == "clean"),
        none_of("rows that failed", account["outcomes"].get("failed", 0)),
    ]


def status_table(tally: Tally) -> str:
    statuses = sorted(tally.by_status)
    names = ["closed" if status == NO_REPLY else str(status) for status in statuses]
    kinds = sorted({kind for kind, _ in tally.counts})
    rows = [[kind, *(tally.counts[kind, status] for status in statuses)] for kind in kinds]
    totals = ["all", *(tally.by_status[status] for status in statuses)]
    return markdown_table(["kind", *names], [*rows, totals])


def report(meta: Meta, checks: Sequence[Check], bad: Tally, left: Tally) -> str:
    outcomes = ", ".join(f"{name} {count}" for name, count in meta["outcomes"].items())
    faults = "\n".join(f"- {fault}" for fault in [*bad.faults, *left.faults])
    return "\n".join(
        [
            f"# Flood of {meta['began'][:10]}",
            "",
            heading(meta),
            "",
            check_table(checks),
            f"Rows by how they ended: {outcomes or 'not told'}.",
            "",
            "## Bad requests by kind and status",
            "",
            "closed: without a reply, as it must be where the client had ended its side before the",
            "request was whole.",
            "",
            status_table(bad),
            "## Clients that leave, by the moment and the status they saw",
            "",
            status_table(left),
            "## Wrong answers",
            "",
            faults or "None.",
            "",
        ]
    )


def heading(meta: Meta) -> str:
    machine, args = meta["machine"], meta["arguments"]
    return (
        f"{args['requests']:,} bad requests (seeds from {args['seed']}) and {args['disconnects']:,}"
        f" clients that leave at a random moment,\n{args['threads']} at once over real sockets, in"
        f" {meta['seconds']:.0f} s. Server: `{meta['command']}`, surefoot"
        f" {meta['packages'].get('surefoot', '?')};\n{machine['cores']} cores,"
        f" {machine['system'].split()[0]}, Python {machine['python']}."
    )


def measure(args: argparse.Namespace, checks: list[Check], folder: RunFolder, meta: Meta) -> str:
    bad, left = Tally(), Tally()
    log = folder.path / "server.log"
    began = time.monotonic()
    with ServerProcess("flooded", shlex.split(args.program), log) as server:
        server.wait_ready()
        meta["command"] = shown_command(server.command)
        url = server.endpoint.url
        flood(args, url, bad, left)
        checks += checks_over_http(url, bad, left)
        status = server.stop()
    meta["seconds"] = time.monotonic() - began
    account = account_of(log.read_text(encoding="utf-8", errors="replace"))
    meta["outcomes"] = account.get("outcomes", {})
    checks += account_checks(status, account)
    for name, tally in (("bad", bad), ("left", left)):
        for (kind, code), count in sorted(tally.counts.items()):
            folder.append({"flood": name, "kind": kind, "status": code, "count": count})
    return report(meta, checks, bad, left)


def main() -> int:
    args = parse_arguments()
    checks: list[Check] = []
    status = run_session("flood", args, partial(measure, args, checks))
    return status or int(not all(check.right for check in checks))


if __name__ == "__main__":
    sys.exit(main())
