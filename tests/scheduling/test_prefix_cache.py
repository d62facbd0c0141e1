"""Prefix reuse over the scripted engine: who finds what, and that it changes no reply."""

from __future__ import annotations

import pytest

from support.fakes import ScriptedEngine
from support.paged_runs import cached, num_fed, paged_engine, paged_run
from support.scheduler_runs import GREEDY, PENALIZED, SEEDED, Run, alone, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import Failed, FinishReason
from surefoot.core.request import SamplingParams
from surefoot.errors import EngineError
from surefoot.scheduling.prefix_cache import PrefixCache
from surefoot.scheduling.proposing import PromptLookup
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

LONG = tuple(range(7, 7 + 40))


def graded() -> PromptLookup:
    return PromptLookup.from_config(PromptLookupConfig(policy=DraftPolicy.GRADED))


def prefixes_of(run: Run) -> PrefixCache:
    prefixes = run.scheduler._storage._prefixes
    assert prefixes is not None
    return prefixes


def num_known(run: Run) -> int:
    return prefixes_of(run).num_used


def known_ids(run: Run) -> list[tuple[int, ...]]:
    """The tokens of every known block."""
    return sorted(entry.ids for entry in prefixes_of(run)._index._entries.values())


def constant_key(parent: bytes, content: bytes) -> bytes:
    return b"same"


@pytest.mark.parametrize(
    ("length", "known"), [(1, 0), (16, 0), (17, 16), (32, 16), (33, 32), (40, 32), (48, 32)]
)
def test_a_repeated_prompt_computes_what_whole_blocks_leave(length: int, known: int) -> None:
    engine = paged_engine()
    prompt = tuple(range(length))
    run = paged_run(engine).add(request(1, prompt, 4)).finish()
    fed = num_fed(engine, 1)
    run.add(request(2, prompt, 4)).finish()
    assert (cached(run, 1), cached(run, 2)) == (0, known)
    assert num_fed(engine, 2) == fed - known
    timings = run.finished(2).timings
    assert (timings.prompt_n, run.finished(2).prompt_tokens) == (length - known, length)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED, PENALIZED])
def test_a_hit_equals_a_miss_equals_dense(sampling: SamplingParams) -> None:
    engine = paged_engine(vocab=3)
    run = paged_run(engine, lookup=graded())
    dense = Run(ScriptedEngine(2, 256, vocab=3), lookup=graded())
    for number in range(1, 4):
        run.add(request(number, LONG, 30, sampling)).finish()
        dense.add(request(number, LONG, 30, sampling)).finish()
        assert (
            run.tokens(number)
            == dense.tokens(number)
            == alone(engine, request(9, LONG, 30, sampling))
        )
    assert [cached(run, number) for number in (1, 2, 3)] == [0, 32, 32]


def test_a_row_begins_in_the_window_that_has_what_it_knows() -> None:
    engine = paged_engine(num_windows=3)
    run = paged_run(engine)
    other = tuple(range(200, 240))
    for number, prompt in enumerate((LONG, other, LONG, (*other, 1), (*LONG, 2)), 1):
        run.add(request(number, prompt, 2)).finish()
        assert run.tokens(number) == alone(engine, request(number, prompt, 2))
    assert [window for window, _ in engine.loaded] == [0, 1, 0]
    assert [cached(run, number) for number in range(1, 6)] == [0, 0, 32, 32, 32]
    assert (engine.copied, engine.blocks) == (0, {})


def test_what_a_window_held_is_saved_before_another_row_writes_there() -> None:
    engine = paged_engine(num_windows=1, vocab=3)
    run = paged_run(engine)
    half = (*LONG[:16], *range(90, 110))
    for number, prompt in enumerate((LONG, half, (5, 5), LONG, half), 1):
        run.add(request(number, prompt, 12)).finish()
        assert run.tokens(number) == alone(engine, request(number, prompt, 12))
    assert [cached(run, number) for number in range(1, 6)] == [0, 16, 0, 32, 32]
    # The second kept the first block in place, the fourth found none there, the fifth that one.
    assert engine.loaded == [(0, 16), (0, 32), (0, 32)]
    assert engine.copied == 2 + 1


def test_a_clean_window_is_kept_ready_while_rows_run() -> None:
    """Two conversations lie in two of three windows: the third is clean until a row takes it; then
    the one that has least is saved, a block a step, and found in place or in its memory."""
    engine = paged_engine(num_windows=3)
    run = paged_run(engine)
    other = tuple(range(200, 280))
    for number, prompt in ((1, LONG), (2, other)):
        run.add(request(number, prompt, 2)).finish()
    assert engine.blocks == {}
    run.add(request(3, (5, 5), 30))
    run.tick(1)
    assert len(engine.blocks) == 1
    run.tick(8)
    assert len(engine.blocks) == 2
    run.finish().add(request(4, (9, 9), 4), request(5, (*LONG, 1), 4)).finish()
    assert cached(run, 5) == 32
    for number, prompt in ((4, (9, 9)), (5, (*LONG, 1))):
        assert run.tokens(number) == alone(engine, request(number, prompt, 4))


def test_a_block_that_makes_way_gives_its_memory_back() -> None:
    """One window and room for two blocks: what was saved of the first prompt makes way for what the
    third computes, which lies in the window alone."""
    engine = paged_engine(num_windows=1, num_blocks=2)
    run = paged_run(engine)
    run.add(request(1, LONG, 1)).finish().add(request(2, (5, 5), 1)).finish()
    assert len(engine.blocks) == 2
    run.add(request(3, tuple(reversed(LONG)), 1)).finish()
    assert (engine.blocks, num_known(run)) == ({}, 2)
    run.add(request(4, tuple(reversed(LONG)), 1)).finish()
    assert cached(run, 4) == 32


def test_a_row_copies_from_a_running_rows_window() -> None:
    engine = paged_engine(vocab=3)
    run = paged_run(engine).add(request(1, LONG, 60, SEEDED))
    run.tick(5)
    assert engine.blocks == {}
    run.add(request(2, (*LONG, 9), 20)).finish()
    assert (engine.loaded, engine.copied) == ([(1, 32)], 2)
    assert run.tokens(1) == alone(engine, request(1, LONG, 60, SEEDED))
    assert run.tokens(2) == alone(engine, request(2, (*LONG, 9), 20))


def test_a_chat_that_grows_hits_on_every_turn() -> None:
    engine = paged_engine(capacity=1024)
    run = paged_run(engine)
    history = list(range(100, 150))
    known, computed = [], [1]
    for turn in range(1, 6):
        run.add(request(turn, history, 20)).finish()
        known.append(cached(run, turn))
        computed.append(len(history) + 20)
        history += [*run.tokens(turn), *range(turn, turn + 11)]
    # All but the last emitted token, which was never fed, in whole blocks.
    assert known == [(tokens - 1) // 16 * 16 for tokens in computed[:-1]] == [0, 64, 96, 128, 160]


def test_two_rows_share_a_beginning_while_one_is_cancelled() -> None:
    engine = paged_engine(num_windows=3, vocab=3)
    run = paged_run(engine).add(request(1, LONG, 2)).finish()
    first, second = request(2, (*LONG, 1), 40), request(3, (*LONG, 2, 2), 40)
    run.add(first, second)
    run.tick(6)
    run.scheduler.cancel(2)
    run.finish()
    assert run.reason(2) is FinishReason.CANCELLED
    assert (cached(run, 2), cached(run, 3)) == (32, 32)
    assert run.tokens(2) == alone(engine, first)[: len(run.tokens(2))]
    assert run.tokens(3) == alone(engine, second)


def test_what_a_running_row_computed_is_known_at_once() -> None:
    engine = paged_engine()
    run = paged_run(engine).add(request(1, LONG, 60))
    run.tick(5)
    run.add(request(2, (*LONG, 9), 3)).finish()
    assert cached(run, 2) == 32


def test_equal_prompts_at_once_are_read_once() -> None:
    """The second is admitted with the first, and begins when the first is through its prompt."""
    engine = paged_engine(num_windows=4, vocab=3)
    run = paged_run(engine, config=SchedulerConfig(4, chunk_alone=20, chunk_busy=20))
    prompt = tuple(range(60))
    rows = [request(number, prompt, 20, SEEDED) for number in (1, 2, 3)]
    run.add(*rows).finish()
    assert [cached(run, number) for number in (1, 2, 3)] == [0, 48, 48]
    assert [run.tokens(number) for number in (1, 2, 3)] == [alone(engine, one) for one in rows]


def test_salts_are_apart() -> None:
    run = paged_run(paged_engine())
    for number, salt in enumerate(("", "a", "b", "a", ""), 1):
        run.add(request(number, LONG, 2, cache_salt=salt)).finish()
    assert [cached(run, number) for number in range(1, 6)] == [0, 0, 0, 32, 32]


def test_a_colliding_prompt_is_a_miss_and_its_reply_is_right() -> None:
    """Every block has the same key: one is ever indexed, and nobody gets it for another's."""
    engine = paged_engine()
    run = paged_run(engine, block_hash=constant_key)
    prompts = [LONG, tuple(reversed(LONG)), LONG, (*LONG[:16], *LONG[:24])]
    for number, prompt in enumerate(prompts, 1):
        run.add(request(number, prompt, 12)).finish()
        assert run.tokens(number) == alone(engine, request(number, prompt, 12))
    assert [cached(run, number) for number in range(1, 5)] == [0, 0, 16, 16]
    assert num_known(run) == 1


def test_prompts_that_differ_in_one_early_token_do_not_meet() -> None:
    engine = paged_engine(num_blocks=256)
    run = paged_run(engine)
    for number in range(1, 30):
        prompt = (number, *LONG)
        run.add(request(number, prompt, 3)).finish()
        assert cached(run, number) == 0
        assert run.tokens(number) == alone(engine, request(number, prompt, 3))


def test_the_oldest_ends_of_chains_are_evicted_first() -> None:
    engine = paged_engine(num_blocks=6)
    run = paged_run(engine)
    a, b = tuple(range(100, 133)), tuple(range(200, 233))
    run.add(request(1, a, 1)).finish().add(request(2, b, 1)).finish()
    run.add(request(3, a, 1)).finish()
    assert cached(run, 3) == 32
    # Two free blocks, four with content: the new chain of four takes b's, its end first.
    c = tuple(range(300, 350))
    run.add(request(4, c, 1)).finish()
    assert known_ids(run) == sorted([a[:16], a[16:32], b[:16], c[:16], c[16:32], c[32:48]])
    # What b lacks now takes the place of a's end, the longest untouched.
    run.add(request(5, b, 1)).finish().add(request(6, a, 1)).finish()
    assert (cached(run, 5), cached(run, 6)) == (16, 16)


def test_rows_that_share_all_blocks_with_running_ones_still_run() -> None:
    """A pool that running rows hold wholly takes nothing more, and nobody waits for it."""
    engine = paged_engine(num_blocks=2, vocab=3)
    run = paged_run(engine)
    first, second = request(1, LONG, 40), request(2, tuple(reversed(LONG)), 40)
    run.add(first, second).finish()
    assert run.tokens(1) == alone(engine, first)
    assert run.tokens(2) == alone(engine, second)


def test_nobody_begins_from_what_a_failed_row_was_built_on() -> None:
    engine = paged_engine()
    run = paged_run(engine).add(request(1, LONG, 2)).finish()
    engine.fault = lambda plan, row: "not finite" if row.row_id == 2 and row.end > 60 else None
    run.add(request(2, (*LONG, 1), 40)).finish()
    assert isinstance(run.end(2), Failed)
    run.add(request(3, LONG, 2)).finish().add(request(4, LONG, 2)).finish()
    assert (cached(run, 1), cached(run, 3), cached(run, 4)) == (0, 0, 32)


def test_after_a_broken_tick_nothing_is_known() -> None:
    engine = paged_engine()
    run = paged_run(engine).add(request(1, LONG, 2)).finish()
    run.add(request(2, LONG, 20), request(3, LONG, 20))
    run.tick(3)
    events = run.scheduler.fail_all(EngineError("broken"))
    assert sorted(event.request_id for event in events) == [2, 3]
    run.scheduler.check()
    run.add(request(4, LONG, 2)).finish()
    assert cached(run, 4) == 0


def test_a_preempted_row_goes_on_from_its_blocks() -> None:
    engine = paged_engine(num_windows=1, vocab=3)
    config = SchedulerConfig(max_rows=1)
    run = paged_run(engine, config=config, lookup=graded()).add(request(1, LONG, 60, SEEDED))
    run.tick(12)
    emitted = len(run.tokens(1))
    assert emitted > 8
    fed = num_fed(engine, 1)
    assert run.scheduler.preempt(1)
    run.scheduler.check()
    run.tick()
    held = 40 + len(run.tokens(1)) - 1
    assert engine.loaded == [(0, (40 + emitted - 1) // 16 * 16)]
    assert num_fed(engine, 1) - fed < held
    run.finish()
    assert run.tokens(1) == alone(engine, request(1, LONG, 60, SEEDED))
    assert cached(run, 1) == 0
