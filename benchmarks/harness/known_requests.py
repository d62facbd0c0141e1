"""Requests whose text is known once it has been asked for: greedy or seeded, on a deterministic
server. What a soak compares, whatever else goes on.
"""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.bad_values import CHAT_PATH, COMPLETION_PATH
from harness.sse import DONE, StreamError, data_of
from harness.workloads import load_items

TIMEOUT_S = 120.0

Texts = tuple[tuple[str, str], ...]
"""Text and finish reason of each choice, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """`body` without `stream`. Compared by identity."""

    number: int
    path: str
    body: Mapping[str, Any]


def known_requests(count: int, seed: int, max_tokens: int) -> list[Known]:
    """Chats and completions with all that a client may vary; the same seed, the same requests."""
    rng = random.Random(seed)
    return [known_request(rng, number, max_tokens) for number in range(count)]


def known_request(rng: random.Random, number: int, max_tokens: int) -> Known:
    item = rng.choice([*load_items("plain"), *load_items("copy")])
    body: dict[str, Any] = {"max_tokens": rng.randrange(4, max_tokens + 1)}
    if rng.random() < 0.7:
        path, body["messages"] = CHAT_PATH, list(item.messages)
    else:
        path, body["prompt"] = COMPLETION_PATH, item.messages[-1]["content"]
    body |= sampling(rng)
    for name, value, share in (
        ("n", rng.choice([2, 3]), 0.25),
        ("stop", rng.choice([".", ["\n", "the"], ["zebra crossing", ", and"]]), 0.4),
        ("speculation", False, 0.1),
        ("ignore_eos", True, 0.1),
        ("logit_bias", {str(rng.randrange(100)): -100}, 0.1),
        ("logprobs", True if path == CHAT_PATH else 2, 0.15),
    ):
        if rng.random() < share:
            body[name] = value
    return Known(number, path, body)


def sampling(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"temperature": 0}
    fields: dict[str, Any] = {"temperature": rng.choice([0.7, 1.0, 1.5]), "seed": rng.randrange(99)}
    for name, values in (
        ("top_p", (0.5, 0.95)),
        ("top_k", (5, 40)),
        ("min_p", (0.05,)),
        ("presence_penalty", (0.5,)),
        ("frequency_penalty", (0.3,)),
        ("repetition_penalty", (1.1,)),
    ):
        if rng.random() < 0.3:
            fields[name] = rng.choice(values)
    return fields


def ask(url: str, known: Known, stream: bool) -> Texts:
    """The request's texts. Raises `StreamError` for any other answer, or `OSError`."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    try:
        content = json.dumps({**known.body, "stream": stream}).encode()
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", known.path, content, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise StreamError(f"status {response.status}: {response.read()[:300]!r}")
        if stream:
            return joined(data_of(iter(response.readline, b"")))
        choices = json.loads(response.read())["choices"]
    finally:
        connection.close()
    return tuple((text_in(choice, "message"), choice["finish_reason"]) for choice in choices)


def joined(events: Iterable[str]) -> Texts:
    """The texts of a stream, choice by choice. Raises `StreamError` unless it ends as it should."""
    texts: dict[int, list[str]] = {}
    ends: dict[int, str] = {}
    done = False
    for data in events:
        if data == DONE:
            done = True
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise StreamError(str(chunk["error"]))
        for choice in chunk["choices"]:
            texts.setdefault(choice["index"], []).append(text_in(choice, "delta"))
            if choice["finish_reason"]:
                ends[choice["index"]] = choice["finish_reason"]
    if not done or ends.keys() != texts.keys():
        raise StreamError("the stream ended early")
    return tuple(("".join(texts[index]), ends[index]) for index in sorted(texts))


def text_in(choice: Mapping[str, Any], part: str) -> str:
    text = choice["text"] if "text" in choice else choice[part].get("content")
    return text or ""
