"""What keeping KV in shared blocks costs and gives: speed, time to first token, memory.

    python benchmarks/kv_storage.py            # about ten minutes on two cores
    python benchmarks/kv_storage.py --quick    # a look

Four measurements, each on servers of its own: decode speed of paged against dense storage by
context, first token of a prompt that is known against one that is not, resident memory after 20 and
after 200 mixed requests under a budget that 20 fill, and the peak of one request of 2,048 tokens.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from harness import machine, meta_report
from harness.arms import Arm, running_arms
from harness.runs import RunFolder
from harness.session import (
    Meta,
    add_run_options,
    add_server_options,
    new_parser,
    now,
    run_session,
    serve_command,
    tell,
)
from harness.sse import Reply
from harness.tables import markdown_table
from harness.workloads import load_long_task

PAGED, DENSE, PAGED_AGAIN = "paged", "dense", "paged again"
STORAGE = {PAGED: "--decode-storage-backend paged", DENSE: "--decode-storage-backend dense"}
CONTEXTS = (256, 1024, 4096)
KNOWN_PROMPT = 1009
"""The last token is computed, so 1,008 can be known: 63 whole blocks."""
PEAK_TOKENS = 2048
DECODED = 64
MIXED, MIXED_FIRST, MIXED_AT_ONCE = 200, 20, 4
MIXED_FLAGS = "--ctx 2048 --kv-cache-budget 256MiB"
"""Room for 5,800 tokens of the default model, half of it taken by four running rows at most."""


def content(tokens_wanted: int, arm: Arm) -> str:
    """Text that makes a chat prompt of exactly so many tokens: filler, then single letters."""
    filler = load_long_task().filler
    filler *= 1 + tokens_wanted * 6 // len(filler)
    low, high = 0, tokens_wanted * 8
    while high - low > 1:
        middle = (low + high) // 2
        if prompt_tokens(filler[:middle], arm) <= tokens_wanted - 8:
            low = middle
        else:
            high = middle
    text = filler[:low].rstrip() + "\n"
    while (missing := tokens_wanted - prompt_tokens(text, arm)) > 0:
        text += " a" * missing
    if missing:
        raise ValueError(f"no text of {tokens_wanted} tokens was found")
    return text


def prompt_tokens(text: str, arm: Arm) -> int:
    # Several tokens: one alone may be an end token, which has no text, and no text is no reply.
    return ask(arm, text, 8).prompt_tokens


def ask(arm: Arm, text: str, max_tokens: int, **fields: Any) -> Reply:
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        **fields,
    }
    return arm.endpoint.stream_chat(body)


class Measurement:
    """Servers and raw records of one run."""

    def __init__(self, args: argparse.Namespace, folder: RunFolder, meta: Meta) -> None:
        self.args, self.folder, self.meta = args, folder, meta
        self.rounds = 2 if args.quick else args.rounds
        self.random = random.Random(args.seed)

    @contextmanager
    def arms(self, flags: str, *names: str) -> Iterator[dict[str, Arm]]:
        """Servers without speculation, on the named storages."""
        wanted = {name: f"--draft-kind none {STORAGE[name]} {flags}" for name in names}
        with running_arms(serve_command(self.args), wanted, {}, self.folder.path) as arms:
            self.meta["servers"] += [arm.about() for arm in arms]
            yield {arm.name: arm for arm in arms}

    def record(self, part: str, **values: Any) -> None:
        self.folder.append({"part": part, **values})


def decode_speed(run: Measurement) -> str:
    """Paged asked twice, for the noise floor; arms in random order."""
    rows = []
    with run.arms("", PAGED, DENSE) as arms:
        for context in CONTEXTS[:2] if run.args.quick else CONTEXTS:
            tell(f"decoding behind {context} tokens")
            text = content(context, arms[PAGED])
            for arm in arms.values():
                ask(arm, text, 8)
            speeds: dict[str, list[float]] = {name: [] for name in (PAGED, DENSE, PAGED_AGAIN)}
            for turn in range(run.rounds):
                for name in run.random.sample(list(speeds), len(speeds)):
                    time.sleep(run.args.pause)
                    arm = arms[PAGED if name == PAGED_AGAIN else name]
                    reply = ask(arm, text, DECODED)
                    speed = reply.tokens / (reply.decode_s or reply.client_decode_s)
                    speeds[name].append(speed)
                    run.record("decode", context=context, turn=turn, arm=name, speed=speed)
            rows.append(
                [
                    f"{context:,}",
                    spread(speeds[PAGED]),
                    spread(speeds[DENSE]),
                    ratio(speeds[PAGED], speeds[DENSE]),
                    ratio(speeds[PAGED_AGAIN], speeds[PAGED]),
                ]
            )
    head = ["context", "paged, tokens/s", "dense, tokens/s", "paged of dense", "paged of itself"]
    return "## Decode speed\n\n" + markdown_table(head, rows)


def first_token(run: Measurement) -> str:
    """A salt of its own makes a prompt unknown; the same salt again, known but for its end."""
    unknown: list[float] = []
    known: list[float] = []
    with run.arms("", PAGED) as arms:
        arm = arms[PAGED]
        text = content(KNOWN_PROMPT, arm)
        for turn in range(run.rounds):
            for times, cached in ((unknown, 0), (known, KNOWN_PROMPT - 1)):
                time.sleep(run.args.pause)
                reply = ask(arm, text, 2, cache_salt=f"turn-{turn}")
                if reply.cached_tokens != cached:
                    raise ValueError(f"{reply.cached_tokens} tokens were known, not {cached}")
                times.append(reply.first_s * 1000)
                run.record("first token", turn=turn, cached=cached, seconds=reply.first_s)
    line = ratio(unknown, known)
    head = [f"{KNOWN_PROMPT:,} tokens, of which known", "first token, ms"]
    table = markdown_table(
        head, [["none", spread(unknown)], [f"{KNOWN_PROMPT - 1:,}", spread(known)]]
    )
    return f"## Time to first token\n\n{table}\nUnknown of known: {line} times.\n"


def flat_memory(run: Measurement) -> str:
    """Mixed lengths, several at once, prompts that share beginnings and some that do not."""
    filler = load_long_task().filler
    total = MIXED_FIRST * 2 if run.args.quick else MIXED
    seen: dict[int, float] = {}
    with run.arms(MIXED_FLAGS, PAGED) as arms:
        arm = arms[PAGED]

        def one(size: tuple[int, int, int]) -> Reply:
            start, chars, tokens = size
            return ask(arm, filler[start : start + chars], tokens)

        sizes = [
            (
                run.random.choice([0, 0, 500, 2000, 5000]),
                run.random.choice([200, 1200, 2500, 4500]),
                run.random.choice([4, 16, 48]),
            )
            for _ in range(total)
        ]
        with ThreadPoolExecutor(MIXED_AT_ONCE) as pool:
            done = 0
            for upto in (MIXED_FIRST, total // 2, total):
                list(pool.map(one, sizes[done:upto]))
                done = upto
                seen[done] = resident_mib(arm)
                run.record("memory", requests=done, mib=seen[done])
    first, last = seen[MIXED_FIRST], seen[total]
    table = markdown_table(["requests", "resident, MiB"], list(seen.items()))
    change = f"{100 * (last / first - 1):+.1f} %"
    return f"## Memory under a budget\n\n`{MIXED_FLAGS}`\n\n{table}\nFirst to last: {change}.\n"


def peak_memory(run: Measurement) -> str:
    """One request whose prompt and reply take 2,048 tokens together, on a fresh server each."""
    rows = []
    for name in (PAGED, DENSE):
        with run.arms("", name) as arms:
            started = arms[name].peak_memory_mib()
            filler = load_long_task().filler
            reply = ask(arms[name], (filler * 2)[:7600], 4)
            rest = max(PEAK_TOKENS - reply.prompt_tokens, 1)
        with run.arms("", name) as arms:
            reply = ask(arms[name], (filler * 2)[:7600], rest)
            peak = arms[name].peak_memory_mib()
            run.record("peak", arm=name, tokens=reply.prompt_tokens + reply.tokens, mib=peak)
            rows.append([name, f"{reply.prompt_tokens + reply.tokens:,}", started, peak])
    head = ["storage", "tokens", "after starting, MiB", "peak, MiB"]
    return "## Peak memory of one request\n\n" + markdown_table(head, rows)


def resident_mib(arm: Arm) -> float:
    status = machine.read_text(f"/proc/{arm.pid}/status").splitlines()
    line = next(line for line in status if line.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Of each turn's pair: the median, and the range."""
    each = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    return f"{statistics.median(each):.3f} ({each[0]:.3f}-{each[-1]:.3f})"


PARTS = {
    "decode": decode_speed,
    "first-token": first_token,
    "memory": flat_memory,
    "peak": peak_memory,
}


def measure(args: argparse.Namespace, folder: RunFolder, meta: Meta) -> str:
    run = Measurement(args, folder, meta)
    sections = [PARTS[name](run) for name in args.part or PARTS]
    meta["ended"] = now()
    return "\n".join([meta_report.heading("KV storage", meta, []), *sections])


def main(argv: list[str] | None = None) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--rounds", type=int, default=9)
    add_server_options(parser)
    add_run_options(parser, "kv-storage")
    args = parser.parse_args(argv)
    return run_session("kv_storage", args, partial(measure, args))


if __name__ == "__main__":
    sys.exit(main())
