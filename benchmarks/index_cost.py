"""What looking costs: building the n-gram index over a long context, and one lookup in it.

    python benchmarks/index_cost.py

Medians over many repetitions, for suffix lengths 2 to 3 over 8,000 tokens by default. Two
contexts: random tokens, which fill the index most (every n-gram is new), and a text that repeats
itself. Needs surefoot installed; no model and no server.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable

from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.lookup import NgramIndex

VOCAB = 49_152
"""Of the default model."""


def contexts(length: int) -> dict[str, list[int]]:
    rng = random.Random(1)
    passage = [rng.randrange(VOCAB) for _ in range(200)]
    return {
        "random": [rng.randrange(VOCAB) for _ in range(length)],
        "repeats": (passage * (length // len(passage) + 1))[:length],
    }


def median_s(call: Callable[[], object], repetitions: int) -> float:
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def built(config: PromptLookupConfig, context: list[int]) -> NgramIndex:
    index = NgramIndex(config)
    index.extend(context)
    return index


def extend_s(config: PromptLookupConfig, context: list[int], repetitions: int) -> float:
    """One more token, as each emitted token costs; the context grows by `repetitions`."""
    index, growing = built(config, context), list(context)
    seconds = []
    for token in context[:repetitions]:
        growing.append(token)
        began = time.perf_counter()
        index.extend(growing)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--ngram-min", type=int, default=2)
    parser.add_argument("--ngram-max", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=50)
    args = parser.parse_args()
    config = PromptLookupConfig(ngram_max=args.ngram_max, ngram_min=args.ngram_min)
    print(f"Python {platform.python_version()}, {platform.machine()}; {args.tokens} tokens,")
    print(f"lengths {args.ngram_min} to {args.ngram_max}, medians of {args.repetitions}\n")
    print("| context | entries | build | one more token | one lookup |")
    print("|---|---:|---:|---:|---:|")
    for name, context in contexts(args.tokens).items():
        index = built(config, context)
        build = median_s(lambda c=context: built(config, c), args.repetitions)
        lookup = median_s(lambda i=index, c=context: i.find(c, config), 20 * args.repetitions)
        extend = extend_s(config, context, args.repetitions)
        print(
            f"| {name} | {len(index)} | {1e3 * build:.2f} ms | {1e6 * extend:.2f} µs "
            f"| {1e6 * lookup:.2f} µs |"
        )


if __name__ == "__main__":
    main()
