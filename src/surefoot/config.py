"""Settings, one frozen dataclass per layer, validated on construction and never altered.

Speculation has its own, `surefoot.speculation.config`. A class is handed its own layer's config
or just the numbers it needs, never a tree of them. The environment is read by the command line
alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.errors import ConfigError


def require_range(field: str, value: float, low: float, high: float | None = None) -> None:
    """Raise `ConfigError` naming field, value and limit unless `low <= value <= high`, which
    not-a-number is not."""
    if not low <= value or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigError(f"{field} is {value}; it must be {limit}", param=field)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`num_windows` rows can be held at once, each of `capacity` token positions;
    `num_spare_windows` more, numbered behind them, are for measuring beside rows; `num_blocks` are
    kept beside them for prompts that begin alike (none: every prompt is read whole).

    `num_threads`: workers of one forward. `deterministic`: never feed a row alone, so results do
    not depend on batch shape. `accuracy_level` is MatMulNBits' (4: 8-bit activations, 1: float
    arithmetic, about six times slower; for tests).
    """

    num_windows: int = 4
    num_spare_windows: int = 0
    capacity: int = 8192
    num_threads: int = 2
    deterministic: bool = False
    accuracy_level: int = 4
    num_blocks: int = 0

    def __post_init__(self) -> None:
        require_range("num_windows", self.num_windows, 1, 64)
        require_range("capacity", self.capacity, 2)
        require_range("num_threads", self.num_threads, 1, 1024)
        require_range("num_blocks", self.num_blocks, 0)
        if self.accuracy_level not in (0, 1, 4):
            raise ConfigError(
                f"accuracy_level is {self.accuracy_level}; it must be 0, 1 or 4",
                param="accuracy_level",
            )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """`max_rows` decode at once; up to `max_queue_depth` more wait.

    A prompt is read in chunks: of `chunk_busy` tokens while other rows decode (so that none
    stalls for more than one such chunk), of `chunk_alone` tokens otherwise. A fixed
    `--prefill-chunk-size` sets both. `lookahead` False makes every step synchronous (tests).
    `preemption`: a row is set aside for a waiting one of higher priority. A request that waited
    `queue_timeout_s` without being admitted is refused; 0: it waits as long as it takes.
    """

    max_rows: int = 4
    max_queue_depth: int = 256
    chunk_busy: int = 32
    chunk_alone: int = 128
    lookahead: bool = True
    preemption: bool = False
    queue_timeout_s: float = 0.0

    def __post_init__(self) -> None:
        require_range("parallel", self.max_rows, 1, 64)
        require_range("max_queue_depth", self.max_queue_depth, 0)
        require_range("chunk_busy", self.chunk_busy, 1)
        require_range("chunk_alone", self.chunk_alone, 1)
        require_range("queue_timeout", self.queue_timeout_s, 0)
