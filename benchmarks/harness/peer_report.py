"""The report of a peer comparison. Where a peer is faster, its row says so."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from harness.asking import Answer
from harness.comparison import Block, Rate, bootstrap, median_speed, question_rows, speed_ratio
from harness.meta_report import heading, servers
from harness.peer_arms import (
    LLAMA,
    LLAMA_PYTHON,
    ONNX_GENAI,
    OURS,
    OURS_AGAIN,
    OURS_ONNX,
    OURS_ONNX_PLAIN,
    OURS_PLAIN,
)
from harness.peer_arms import own_plain as plain_of
from harness.peer_rounds import by_round
from harness.peer_summary import summary_table
from harness.tables import bullet_list, markdown_table
from harness.verdicts import Verdict, percent, share_at_least

LIMITS = (
    "Every arm is timed by the client, from the first piece of text to the last, over HTTP on the "
    "loopback. llama.cpp brings a server of its own; the engines without one stand behind a small "
    "one that does one write a token.",
    "Greedy, one stream. Each prompt's token count is that of our own plain reply, and every arm "
    "writes exactly as many, end tokens ignored. Engines round differently, so texts part; each "
    "arm is timed on its own text.",
    "Prompts are read cold in every request: prompt caches are off or salted.",
    "Each engine runs the form of the model named in its command; forms of other quantization are "
    "not the same amount of work.",
    "Peak memory is the process's largest resident size, file pages of the model included.",
    "All servers are in memory at once; one is asked at a time.",
)


def peer_report(
    answers: Mapping[str, Sequence[Answer]],
    skipped: Mapping[str, str],
    meta: Mapping[str, Any],
    rounds: int,
    others_cores: Sequence[float],
    plots: str = "",
) -> str:
    """`plots`: Markdown that shows the pictures."""
    parts = [heading("Peers in one run", {**meta, "peak_memory_mib": {}}, others_cores)]
    blocks = {name: speed_blocks(group) for name, group in answers.items()}
    memory = meta.get("peak_memory_mib", {})
    parts.append("## In short\n\n" + summary_table(blocks, answers, memory))
    parts += [plots] if plots else []
    verdicts = [v for name, group in blocks.items() for v in verdicts_of(name, group, rounds)]
    verdicts += [v for n, group in answers.items() for v in prefill_verdicts(n, group, rounds)]
    parts.append("## Verdicts\n\n" + bullet_list(verdict.line() for verdict in verdicts))
    for name, group in answers.items():
        parts.append(f"## {name}\n\n" + speed_table(blocks[name]))
        parts.append(first_token_table(group, memory))
        parts.append(bullet_list(prompt_lines(group)))
    again = by_round(answers)
    parts += [again] if again else []
    if skipped:
        lines = [f"{name}: {reason}" for name, reason in skipped.items()]
        parts.append("## Left out\n\n" + bullet_list(lines))
    parts += [servers(meta), "## What this does not show\n\n" + bullet_list(LIMITS)]
    return "\n".join(parts)


def speed_blocks(answers: Sequence[Answer]) -> list[Block]:
    return [block for answer in answers if (block := answer.block("client")) is not None]


def prefill_blocks(answers: Sequence[Answer]) -> list[Block]:
    """Prompt tokens over the time to the first token."""
    return [
        Block(
            answer.ask.question,
            answer.ask.variant,
            {arm: Rate(r[0].prompt_tokens, r[0].first_s) for arm, r in answer.replies.items()},
        )
        for answer in answers
    ]


def verdicts_of(workload: str, blocks: Sequence[Block], rounds: int) -> list[Verdict]:
    if not blocks:
        return []

    def against(arm: str, base: str, limit: float) -> Verdict:
        total = bootstrap(blocks, partial(speed_ratio, base=base, other=arm))
        goal = f"({workload}) {arm} at least {limit} of {base}"
        return share_at_least(goal, total, limit, rounds)

    goals = []
    for base in blocks[0].arms:
        engine = base.rpartition(" ")[0]
        if base == plain_of(base) and engine.startswith((LLAMA, LLAMA_PYTHON)):
            limit = 1.2 if workload == "long" else 1.0
            goals.append((OURS_PLAIN, base, limit))
            goals += [(OURS, base, 2.0)] if workload == "copy" else []
        elif workload == "copy" and engine.startswith(LLAMA):
            goals.append((OURS, base, 1.5))
        elif workload == "copy" and base == f"{ONNX_GENAI} adaptive":
            goals.append((OURS_ONNX if OURS_ONNX in blocks[0].arms else OURS, base, 1.1))
    if OURS_ONNX in blocks[0].arms:
        goals.insert(0, (OURS_ONNX, OURS_ONNX_PLAIN, 0.99))
    return [against(OURS, OURS_PLAIN, 0.99), *(against(*goal) for goal in goals)]


def prefill_verdicts(workload: str, answers: Sequence[Answer], rounds: int) -> list[Verdict]:
    """Prefill is judged on long prompts: on short ones the first token is mostly overhead."""
    if workload != "long":
        return []
    blocks = prefill_blocks(answers)
    verdicts = []
    for base in blocks[0].arms:
        if base == plain_of(base) and base.startswith((LLAMA, LLAMA_PYTHON)):
            total = bootstrap(blocks, partial(speed_ratio, base=base, other=OURS_PLAIN))
            goal = f"({workload}) prefill at least 1.3 of {base}"
            verdicts.append(share_at_least(goal, total, 1.3, rounds))
    return verdicts


def speed_table(blocks: Sequence[Block]) -> str:
    """Fastest first."""
    if not blocks:
        return "Every reply was too short to time.\n"
    arms = sorted(blocks[0].arms, key=lambda arm: -speed_ratio(blocks, OURS_PLAIN, arm))
    rows = []
    for arm in arms:
        own = plain_of(arm)
        gain = against(blocks, own, arm) if own != arm and own in blocks[0].arms else ""
        ours = against(blocks, OURS_PLAIN, arm) if arm != OURS_PLAIN else ""
        rows.append([arm, median_speed(blocks, arm), ours, gain, worst(blocks, own, arm)])
    header = [
        "arm",
        "tokens/s, median",
        f"against {OURS_PLAIN} (95 %)",
        "against its own plain (95 %)",
        "worst question against its own plain",
    ]
    return markdown_table(header, rows)


def against(blocks: Sequence[Block], base: str, arm: str) -> str:
    total = bootstrap(blocks, partial(speed_ratio, base=base, other=arm))
    return f"{percent(total.value)} ({percent(total.low)} to {percent(total.high)})"


def worst(blocks: Sequence[Block], own: str, arm: str) -> str:
    if own == arm or own not in blocks[0].arms:
        return ""
    row = min(question_rows(blocks, own, arm), key=lambda row: row.ratio)
    return f"{percent(row.ratio)} ({row.question})"


def first_token_table(answers: Sequence[Answer], memory: Mapping[str, float | None]) -> str:
    rows = []
    for arm in answers[0].replies:
        replies = [answer.replies[arm][0] for answer in answers]
        first = statistics.median(1000.0 * reply.first_s for reply in replies)
        prefill = statistics.median(reply.prompt_tokens / reply.first_s for reply in replies)
        mib = memory.get(OURS_PLAIN if arm == OURS_AGAIN else arm)
        rows.append([arm, f"{first:.0f}", f"{prefill:.0f}", f"{mib:.0f}" if mib else "not told"])
    header = ["arm", "first token, ms, median", "prompt tokens/s to it", "peak memory, MiB"]
    return markdown_table(header, rows)


def prompt_lines(answers: Sequence[Answer]) -> list[str]:
    """Whether all arms read and wrote the same number of tokens."""
    lines = []
    for arm in answers[0].replies:
        pairs = [(a.replies[arm][0], a.replies[OURS_PLAIN][0]) for a in answers]
        prompts = sum(reply.prompt_tokens != ours.prompt_tokens for reply, ours in pairs)
        lengths = sum(reply.tokens != ours.tokens for reply, ours in pairs)
        if prompts or lengths:
            lines.append(
                f"{arm}: of {len(pairs)} requests {prompts} had another prompt length than ours "
                f"and {lengths} another reply length."
            )
    return lines or ["Every arm read and wrote the same number of tokens in every request."]
