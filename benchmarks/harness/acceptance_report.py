"""The acceptance report: verdicts first, then the tables they rest on. Pure text from answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from harness import acceptance as goals
from harness.arms import OFF, OFF_AGAIN, ON, UNPRICED
from harness.asking import Answer
from harness.comparison import (
    Block,
    Interval,
    QuestionRow,
    bootstrap,
    by_question,
    gain_share,
    having,
    median_speed,
    question_rows,
    speed_ratio,
)
from harness.meta_report import heading, limits, servers
from harness.pace import plain_step_s
from harness.tables import bullet_list, markdown_table
from harness.texts import draft_line, parting_line, reply_pairs
from harness.verdicts import (
    Outcome,
    Verdict,
    at_least,
    no_question_below,
    not_worse,
    percent,
    share_at_least,
    spread_of,
)
from harness.workloads import longest_shared_share

TOTAL_LIMIT, QUESTION_LIMIT = 0.99, -0.02
COPY_GAIN, SHARE_OF_UNPRICED, LONG_GAIN = 1.5, 0.9, 1.8
WHOLE_COPY = 0.95
"""From this share of the paragraph on, a long reply counts as copying it whole."""


@dataclass(frozen=True, slots=True)
class Run:
    """All answers, by workload. `others_cores`: what other processes used during each request."""

    answers: Mapping[str, Sequence[Answer]]
    rounds: int
    metric: str
    others_cores: tuple[float, ...] = ()


def report(run: Run, meta: Mapping[str, Any]) -> str:
    verdicts = [v for name in run.answers for v in verdicts_of(name, run)]
    if any("--deterministic" in str(value) for value in meta["arguments"].values()):
        verdicts += [v for name, group in run.answers.items() for v in same_texts(name, group)]
    parts = [
        heading("Prompt lookup on against off", meta, run.others_cores),
        "## Verdicts\n\n" + bullet_list(verdict.line() for verdict in verdicts),
        *(section(name, run) for name in run.answers),
        servers(meta),
        limits(run.metric),
    ]
    return "\n".join(parts)


def blocks_of(answers: Sequence[Answer], metric: str) -> list[Block]:
    return [block for answer in answers if (block := answer.block(metric)) is not None]


def stream_blocks(answers: Sequence[Answer], index: int, metric: str) -> list[Block]:
    found = (answer.stream_block(index, metric) for answer in answers)
    return [block for block in found if block is not None]


def compared(blocks: Sequence[Block], base: str, other: str) -> Interval:
    return bootstrap(blocks, partial(speed_ratio, base=base, other=other))


def verdicts_of(workload: str, run: Run) -> list[Verdict]:
    answers = run.answers[workload]
    blocks = blocks_of(answers, run.metric)
    if not blocks:
        return []
    if workload == goals.COPY_GREEDY:
        total = compared(blocks, OFF, ON)
        goal = f"({workload}) at least {percent(COPY_GAIN)} in total"
        return [
            at_least(goal, total, COPY_GAIN, run.rounds),
            *unpriced_share(workload, blocks, run.rounds),
        ]
    if workload == goals.TWO_STREAMS:
        return two_stream_verdicts(answers, run)
    if workload == goals.LONG:
        return long_verdicts(answers, run)
    return plain_verdicts(workload, blocks, run.rounds)


def plain_verdicts(workload: str, blocks: Sequence[Block], rounds: int) -> list[Verdict]:
    noise = spread_of(question_rows(blocks, OFF, OFF_AGAIN))
    rows = question_rows(blocks, OFF, ON)
    total = f"({workload}) no worse than {percent(TOTAL_LIMIT)} in total"
    each = f"({workload}) no question worse than -2 % beyond the spread"
    return [
        at_least(total, compared(blocks, OFF, ON), TOTAL_LIMIT, rounds),
        no_question_below(each, rows, QUESTION_LIMIT, noise, rounds),
    ]


def unpriced_share(name: str, blocks: Sequence[Block], rounds: int) -> list[Verdict]:
    """Empty where that arm was not run."""
    both = having(blocks, UNPRICED)
    if not both:
        return []
    share = bootstrap(both, partial(gain_share, base=OFF, other=ON, full=UNPRICED))
    goal = f"({name}) at least {SHARE_OF_UNPRICED} of what the unpriced policy gains"
    return [share_at_least(goal, share, SHARE_OF_UNPRICED, rounds)]


def same_texts(workload: str, answers: Sequence[Answer]) -> list[Verdict]:
    """What `--deterministic` servers promise: speculation changes no token."""
    verdicts = []
    for arm in (ON, UNPRICED):
        pairs = reply_pairs(answers, arm)
        if pairs:
            same = all(ours.text == base.text for base, ours in pairs)
            outcome = Outcome.MET if same else Outcome.MISSED
            goal = f"({workload}) {arm} writes what off writes, servers being deterministic"
            verdicts.append(Verdict(goal, outcome, parting_line(answers, arm)))
    return verdicts


def two_stream_verdicts(answers: Sequence[Answer], run: Run) -> list[Verdict]:
    kinds = {
        "both streams together": blocks_of(answers, run.metric),
        "the plain stream": stream_blocks(answers, 0, run.metric),
        "the copy stream": stream_blocks(answers, 1, run.metric),
    }
    return [
        not_worse(
            f"(two-streams) {name} no slower beyond the spread",
            compared(blocks, OFF, ON),
            compared(blocks, OFF, OFF_AGAIN),
            run.rounds,
        )
        for name, blocks in kinds.items()
        if blocks
    ]


def long_verdicts(answers: Sequence[Answer], run: Run) -> list[Verdict]:
    verdicts = []
    for length, group in by_length(answers).items():
        blocks, name = blocks_of(group, run.metric), f"long, {length} tokens"
        if not blocks:
            continue
        total, noise = compared(blocks, OFF, ON), compared(blocks, OFF, OFF_AGAIN)
        verdicts += [
            not_worse(f"({name}) on does not lose", total, noise, run.rounds),
            *unpriced_share(name, blocks, run.rounds),
        ]
        whole = blocks_of([a for a in group if copies_whole(a)], run.metric)
        if whole:
            goal = f"({name}) at least {LONG_GAIN}x where the reply copies whole"
            verdicts.append(at_least(goal, compared(whole, OFF, ON), LONG_GAIN, run.rounds))
    return verdicts


def by_length(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.ask.question.split("-")[1], []).append(answer)
    return groups


def copies_whole(answer: Answer) -> bool:
    (item,) = answer.ask.items
    return longest_shared_share(answer.replies[OFF][0].text, item.expected) >= WHOLE_COPY


def section(workload: str, run: Run) -> str:
    answers = run.answers[workload]
    blocks = blocks_of(answers, run.metric)
    if not blocks:
        return f"## {workload}\n\nEvery reply was too short to time.\n"
    arms = [arm for arm in blocks[0].arms if arm != OFF]
    arms.sort(key=lambda arm: (arm != ON, arm != OFF_AGAIN, arm))
    parts = [f"## {workload}\n", totals_table(blocks, arms), question_table(blocks, arms)]
    if workload in (goals.PLAIN_GREEDY, goals.PLAIN_SAMPLED):
        parts += paced_part(answers, arms)
    if workload == goals.TWO_STREAMS:
        for index, kind in enumerate(("plain", "copy")):
            single = stream_blocks(answers, index, run.metric)
            parts.append(f"Of these, the {kind} stream alone:\n\n" + totals_table(single, arms))
    lines = [parting_line(answers, arm) for arm in arms]
    lines += [draft_line(answers, arm) for arm in arms if arm != OFF_AGAIN]
    dropped = len(answers) - len(blocks)
    if dropped:
        lines.append(f"{dropped} blocks left out: a reply was too short to time.")
    return "\n".join([*parts, bullet_list(lines)])


def totals_table(blocks: Sequence[Block], arms: Sequence[str]) -> str:
    rows = [[OFF, median_speed(blocks, OFF), "", "", len(blocks)]]
    for arm in arms:
        total = compared(having(blocks, arm), OFF, arm)
        spread = f"{percent(total.low)} to {percent(total.high)}"
        rows.append([arm, median_speed(blocks, arm), percent(total.value), spread, len(blocks)])
    header = ["total", "tokens/s, median", "against off", "95 % interval", "blocks"]
    return markdown_table(header, rows)


def paced_part(answers: Sequence[Answer], arms: Sequence[str]) -> list[str]:
    """What each arm takes in plain steps of its own (`harness.pace`); nothing without times."""
    blocks = [block for answer in answers if (block := answer.paced_block()) is not None]
    if not blocks:
        return []
    rows = [[OFF, plain_step_ms(answers, OFF), "", "", len(blocks)]]
    for arm in arms:
        total = compared(having(blocks, arm), OFF, arm)
        spread = f"{percent(total.low)} to {percent(total.high)}"
        rows.append([arm, plain_step_ms(answers, arm), percent(total.value), spread, len(blocks)])
    measures = ["plain step, ms", "against off", "95 % interval", "blocks"]
    return [markdown_table(["in plain steps of its own", *measures], rows)]


def plain_step_ms(answers: Sequence[Answer], arm: str) -> str:
    replies = [reply for answer in answers for reply in answer.replies.get(arm, ())]
    return f"{1000 * median(s for r in replies if (s := plain_step_s(r)) is not None):.2f}"


def question_table(blocks: Sequence[Block], arms: Sequence[str]) -> str:
    columns = {
        arm: {row.question: shown_ratio(row) for row in question_rows(blocks, OFF, arm)}
        for arm in arms
    }
    rows = [
        [question, median_speed(group, OFF), *(columns[arm][question] for arm in arms)]
        for question, group in by_question(blocks).items()
    ]
    header = ["question", "off tokens/s", *(f"{arm} (range of blocks)" for arm in arms)]
    return markdown_table(header, rows)


def shown_ratio(row: QuestionRow) -> str:
    return f"{percent(row.ratio)} ({percent(row.low)} to {percent(row.high)})"
