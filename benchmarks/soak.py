"""A server under everything at once for a while, and what it holds and says afterwards.

    python benchmarks/soak.py                        # ten minutes, the default model
    python benchmarks/soak.py --duration 60 --flags "-m model.gguf --parallel 8"

Clients ask for known texts, streamed and whole (chat and completions, several choices, stop
strings, every sampling field, by seed), leave at random moments, send bad requests and look at the
server's pages. Texts are known from a first asking, one at a time, and are asked for again at the
end, of this server and of a fresh one: `--deterministic` makes them equal to the bit. Ends with
status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from harness.arms import DEFAULT_PROGRAM, ServeCommand
from harness.checks import Check, check_table, none_of
from harness.flooding import Tally
from harness.known_requests import Known, Texts, known_requests
from harness.runs import RunFolder
from harness.servers import ServerProcess, shown_command
from harness.session import RESULTS, Meta, new_parser, run_session, tell
from harness.settling import get, held, server_errors, settle
from harness.soak_watch import Sample, Watch, sample, thirds
from harness.soaking import MAX_KEPT, Findings, Soaker, parting, reference, soak
from harness.tables import bullet_list, markdown_table

DEFAULT_FLAGS = "--parallel 4 --ctx 1024 --kv-cache-budget 64MiB"
"""A budget that is soon used up: the pool of shared prefixes may not pass for a leak."""
SETTLE_S = 60.0
GROWTH_MIB, GROWTH_SHARE = 8.0, 0.02
"""What the last third's memory may have over the middle third's: the larger of the two. Python's
and ONNX Runtime's allocators take new pages now and then without losing any."""
FURTHER_FILES = 2
TROUBLE = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--duration", type=float, default=600.0, help="seconds of load")
    parser.add_argument("--clients", type=int, default=8, help="clients at once")
    parser.add_argument("--known", type=int, default=16, help="requests whose text is known")
    parser.add_argument("--max-tokens", type=int, default=32, help="of a known request")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--program", default=DEFAULT_PROGRAM, help="what `serve` is added to")
    parser.add_argument("--flags", default=DEFAULT_FLAGS, help="flags of the server")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the run's folder goes")
    parser.add_argument("--name", default="soak", help="how the folder's name begins")
    parser.set_defaults(force=True)  # nothing is timed, so other work may run beside it
    return parser.parse_args(argv)


def server(args: argparse.Namespace, name: str, folder: RunFolder) -> ServerProcess:
    command = ServeCommand(shlex.split(args.program), [*shlex.split(args.flags), "--deterministic"])
    return ServerProcess(name, command.with_flags(()), folder.path / f"server-{name}.log")


def text_checks(
    url: str, known: Mapping[Known, Texts], findings: Findings, when: str
) -> list[Check]:
    """Each known request again, alone."""
    again = reference(url, list(known))
    parted = [
        parting(each, known[each], again[each]) for each in known if again[each] != known[each]
    ]
    findings.wrong += parted
    return [none_of(f"known texts that part {when}", len(parted))]


def memory_checks(
    samples: Sequence[Sample], before: Sample | None, after: Sample | None
) -> list[Check]:
    """Nothing to say off Linux."""
    if len(samples) < 3 or before is None or after is None:
        return []
    _, middle, last = thirds(samples, lambda each: each.resident_mib)
    allowed = max(GROWTH_MIB, GROWTH_SHARE * middle)
    growth = f"{last - middle:+.1f} on {middle:.1f}, {allowed:.1f} allowed"
    files = f"{before.files} before, {after.files} after"
    return [
        Check(
            "resident memory, last third over middle third, MiB", growth, last - middle <= allowed
        ),
        Check("open files at rest", files, after.files <= before.files + FURTHER_FILES),
    ]


def rest_checks(url: str, findings: Findings) -> list[Check]:
    """What clients found, and what the server says once they have gone."""
    samples = settle(url, SETTLE_S)
    kept, status = held(samples), get(url, "/health").status
    return [
        none_of("texts that parted under load", len(findings.wrong)),
        none_of("good requests that failed", len(findings.failed)),
        none_of("bad requests and clients that left, answered wrongly", findings.tally.num_faults),
        none_of("5xx among their answers", findings.tally.server_errors),
        none_of("5xx but 503, by the server's own count", server_errors(samples)),
        none_of("rows that failed", samples.get('surefoot_rows_total{outcome="failed"}', 0)),
        Check("held afterwards", str(kept or "nothing"), not kept),
        Check("/health afterwards", str(status), status == 200),
    ]


def end_checks(status: int, log: Path) -> list[Check]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [
        none_of("errors in the server's log", sum(bool(TROUBLE.search(line)) for line in lines)),
        Check("the server's exit status", str(status), status == 0),
    ]


def measure(args: argparse.Namespace, checks: list[Check], folder: RunFolder, meta: Meta) -> str:
    findings = Findings()
    requests = known_requests(args.known, args.seed, args.max_tokens)
    with server(args, "soaked", folder) as soaked:
        soaked.wait_ready()
        meta["command"] = shown_command(soaked.command)
        url = soaked.endpoint.url
        tell(f"{len(requests)} known requests, one at a time")
        known = reference(url, requests)
        before = sample(soaked.pid, 0.0)
        tell(f"{args.clients} clients for {args.duration:.0f} s")
        with Watch(soaked.pid) as watch:
            soak(Soaker(url, known, folder, findings), args.clients, args.seed, args.duration)
        checks += rest_checks(url, findings)
        after = sample(soaked.pid, 0.0)
        checks += text_checks(url, known, findings, "afterwards")
        checks += memory_checks(watch.samples, before, after)
        checks += end_checks(soaked.stop(), folder.path / "server-soaked.log")
    tell("the same requests of a fresh server")
    with server(args, "fresh", folder) as fresh:
        fresh.wait_ready()
        checks += text_checks(fresh.endpoint.url, known, findings, "from a fresh server's")
    for each in watch.samples:
        folder.append({"sample": each})
    return report(meta, checks, findings, watch.samples)


def report(
    meta: Meta, checks: Sequence[Check], findings: Findings, samples: Sequence[Sample]
) -> str:
    machine, args = meta["machine"], meta["arguments"]
    told = [*findings.wrong, *findings.failed, *findings.tally.faults][:MAX_KEPT]
    parts = [
        f"# Soak of {meta['began'][:10]}",
        f"{args['clients']} clients for {args['duration']:.0f} s, seed {args['seed']}; "
        f"{args['known']} requests of known text.\nServer: `{meta['command']}`, surefoot "
        f"{meta['packages'].get('surefoot', '?')};\n{machine['processor']}, {machine['cores']} "
        f"cores, {machine['system'].split()[0]}, Python {machine['python']}.",
        check_table(checks),
        "## What the clients did",
        markdown_table(["action", "times"], sorted(findings.done.items())),
        "Bad requests and clients that left, by status (0: closed, or left, without a reply):",
        status_line(findings.tally),
        "## The server's process",
        process_table(samples),
        "## What was wrong",
        bullet_list(told) or "Nothing.",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def status_line(tally: Tally) -> str:
    counts = sorted(tally.by_status.items())
    return ", ".join(f"{status}: {count}" for status, count in counts) or "none"


def process_table(samples: Sequence[Sample]) -> str:
    if len(samples) < 3:
        return "Not seen."
    rows = [
        ["resident memory, MiB", *thirds(samples, lambda each: each.resident_mib)],
        ["of that anonymous, MiB", *thirds(samples, lambda each: each.anonymous_mib)],
        ["threads", *thirds(samples, lambda each: each.threads)],
        ["open files", *thirds(samples, lambda each: each.files)],
    ]
    return markdown_table(["median of each third", "first", "middle", "last"], rows)


def main() -> int:
    args = parse_arguments()
    checks: list[Check] = []
    status = run_session("soak", args, partial(measure, args, checks))
    return status or int(not all(check.right for check in checks))


if __name__ == "__main__":
    sys.exit(main())
