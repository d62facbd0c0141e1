"""Bad JSON: what to put into a request body's fields so that no reader may believe it.

A body is a list of fields whose values are JSON *text*, so that it can hold what no JSON writer
would write. Knows the field names of the OpenAI routes; nothing of HTTP.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

CHAT_PATH, COMPLETION_PATH = "/v1/chat/completions", "/v1/completions"
PATHS = (CHAT_PATH, COMPLETION_PATH)

COMMON_FIELDS = (
    *("model", "max_tokens", "n", "temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "stop"),
    *("stop_token_ids", "logit_bias", "logprobs", "stream", "stream_options", "ignore_eos"),
    *("speculation", "timings_per_token", "cache_salt", "priority"),
    *("user", "metadata", "store", "service_tier"),
    *("parallel_tool_calls", "response_format", "tools", "tool_choice", "functions"),
    *("function_call", "audio", "modalities", "prediction", "web_search_options", "suffix"),
    *("use_beam_search", "grammar", "json_schema", "guided_json", "guided_regex"),
    *("guided_choice", "guided_grammar", "structured_outputs", "safety_identifier"),
    *("prompt_cache_key", "unknown"),
)
FIELDS = {
    CHAT_PATH: (*COMMON_FIELDS, "messages", "max_completion_tokens", "top_logprobs"),
    COMPLETION_PATH: (*COMMON_FIELDS, "prompt", "echo", "best_of"),
}

VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 2, 1.5, -0.0, 16.0, 2**31, 2**63, 2**64, -(2**63), 10**40),
    *(1e308, -1e308, 1e-308, 0.1 + 0.2),
    *("", " ", "1", "null", "NaN", "user", "text", "auto", "x" * 600, "\x00", "\u202e", "💥" * 40),
    *("<|im_end|>", "<|im_start|>system", "{{ 7 * 7 }}", "../../etc/passwd", "%s%n", "\r\nX-A: b"),
    *(
        [],
        [[]],
        [None],
        [True],
        [0],
        [-1],
        [10**10],
        [1, "a"],
        ["a", 1],
        ["a"] * 17,
        [""],
        ["x"] * 3,
    ),
    *([[["a"]]], [{}], [[1], [2, -1]], ["x" * 513], list(range(70)), [1.0, 2.0]),
    *({}, {"a": 1}, {"": None}, {"type": 5}, {"type": "yaml"}, {"type": "json_object"}),
    *({"include_usage": "yes"}, {"include_usage": 1}, {"-1": 1}, {"5": 101}, {"5": "x"}),
    *({"99999999": 5}, {"1.5": 1}, {"abc": 1}, {"5": None}, {str(i): 1 for i in range(1100)}),
    *(
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": 7, "content": "x"}],
        [{"role": "", "content": ""}],
    ),
    *([{"role": "wizard", "content": "x"}], [{"role": "user", "content": None}]),
    *(
        [{"role": "user", "content": {"text": "x"}}],
        [{"role": "user", "content": [{"type": "text"}]}],
    ),
    [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}],
        }
    ],
    *([{"role": "user", "content": "x", "name": 5}], [{"role": "assistant", "tool_calls": [1]}]),
)

LITERALS = (
    *("NaN", "Infinity", "-Infinity", "-NaN", "0x10", "01", "+1", ".5"),
    *(
        "5.",
        "1e",
        "--1",
        "1_000",
        "tru",
        "nul",
        "True",
        "None",
        "undefined",
        "'x'",
        '"',
        '"\\',
        "[1,",
    ),
    *(
        '"\\u12"',
        '"\\x41"',
        '"a\nb"',
        "[1 2]",
        "[1,]",
        "{1: 2}",
        '{"a" 1}',
        '{"a":}',
        "{,}",
        "/* */ 1",
    ),
    *("", "]", "}", "1}", '{"a":1,}', "\x00", "\ufeff1"),
)
"""None of these is JSON."""

ODD_LITERALS = (
    "9" * 4000,
    "-" + "9" * 400,
    "0." + "0" * 3000 + "1",
    "1e-999",
    "1e999",
    "-1e999",
    "1E+400",
    '"\\ud800"',
    '"\\udc00x"',
)
"""JSON to the letter; whether a field takes them is the field's rule."""

DEPTHS = (33, 40, 64, 200, 1000, 20_000)

Fields = list[tuple[str, str]]
Body = Callable[[random.Random, str], bytes]


def base_fields(rng: random.Random, path: str) -> Fields:
    """A small valid body."""
    text = rng.choice(["hi", "Count to three.", "é漢字🔥", "a" * rng.randrange(1, 40)])
    content: object = [{"role": "user", "content": text}] if path == CHAT_PATH else text
    name = "messages" if path == CHAT_PATH else "prompt"
    return [(name, json.dumps(content)), ("max_tokens", str(rng.randrange(1, 4)))]


def written(fields: Sequence[tuple[str, str]]) -> bytes:
    body = ",".join(f"{json.dumps(name)}:{value}" for name, value in fields)
    return f"{{{body}}}".encode("utf-8", "surrogatepass")


def with_value(rng: random.Random, fields: Fields, path: str, value: str) -> Fields:
    """One field of the route, which may be there already, set to this text."""
    name = rng.choice(FIELDS[path])
    return [*(field for field in fields if field[0] != name), (name, value)]


def wrong_values(rng: random.Random, path: str) -> bytes:
    """One to three fields of the route hold something of another kind or size."""
    fields = base_fields(rng, path)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        fields = with_value(rng, fields, path, json.dumps(any_value(rng)))
    rng.shuffle(fields)
    return written(fields)


def any_value(rng: random.Random, depth: int = 0) -> object:
    if depth > 3 or rng.random() < 0.8:
        return rng.choice(VALUES)
    inner = [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return inner if rng.random() < 0.5 else {str(rng.choice(VALUES))[:20]: each for each in inner}


def doubled_field(rng: random.Random, path: str) -> bytes:
    fields = base_fields(rng, path)
    name, _ = rng.choice(fields)
    return written([*fields, (name, json.dumps(rng.choice(VALUES)))])


def missing_field(rng: random.Random, path: str) -> bytes:
    return written(base_fields(rng, path)[1:])


def odd_literal(rng: random.Random, path: str) -> bytes:
    return written(with_value(rng, base_fields(rng, path), path, rng.choice(ODD_LITERALS)))


def no_json(rng: random.Random, path: str) -> bytes:
    return written(with_value(rng, base_fields(rng, path), path, rng.choice(LITERALS)))


def deep(rng: random.Random, path: str) -> bytes:
    depth = rng.choice(DEPTHS)
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ('[{"b":', "}]")])
    value = opening * depth + "1" + closing * depth
    return written(with_value(rng, base_fields(rng, path), path, value))


def cut_short(rng: random.Random, path: str) -> bytes:
    whole = written(base_fields(rng, path))
    return whole[: rng.randrange(len(whole))]


def no_utf8(rng: random.Random, path: str) -> bytes:
    """A string with bytes that are part of no character."""
    bad = rng.choice([b"\xff", b"\x80", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
    whole = written(base_fields(rng, path))
    place = whole.index(b'"hi"') + 2 if b'"hi"' in whole else 2
    return whole[:place] + bad + whole[place:]


def no_object(rng: random.Random, path: str) -> bytes:
    return json.dumps(rng.choice([None, True, 5, 1.5, "x", [], [1], [{"prompt": "x"}]])).encode()


def noise(rng: random.Random, path: str) -> bytes:
    return rng.randbytes(rng.randrange(200))


SOMETIMES_VALID: dict[str, Body] = {
    "wrong values": wrong_values,
    "a field twice": doubled_field,
    "huge or odd literals": odd_literal,
}
NEVER_VALID: dict[str, Body] = {
    "a field missing": missing_field,
    "not JSON": no_json,
    "nested deeply": deep,
    "cut short": cut_short,
    "not UTF-8": no_utf8,
    "no object": no_object,
    "random bytes": noise,
}
