"""Trace: its JSON lines and its refusals."""

import gzip
from pathlib import Path

import pytest

from surefoot.errors import ConfigError
from surefoot.speculation.replay.traces import Trace, read_traces, write_traces


def test_the_short_form() -> None:
    trace = Trace.from_json('{"prompt": [1, 2], "emitted": [3, 4, 5], "model": "ignored"}')
    assert trace == Trace((1, 2), (3, 4, 5))
    assert trace.token_limit == 3
    assert trace.to_json() == '{"prompt":[1,2],"emitted":[3,4,5]}'


def test_files_there_and_back(tmp_path: Path) -> None:
    traces = [
        Trace((1, 2), (3,)),
        Trace((1,), (3, 4, 9), max_tokens=20, end_ids=frozenset({9, 8}), capacity=64, name="a"),
    ]
    path = tmp_path / "traces.jsonl"
    write_traces(traces[:1], path)
    write_traces(traces[1:], path, append=True)
    assert read_traces(path) == traces
    write_traces(traces[:1], path)
    path.write_text("\n" + path.read_text() + "\n\n")
    assert read_traces(path) == traces[:1]


def test_a_compressed_file(tmp_path: Path) -> None:
    plain, packed = tmp_path / "traces.jsonl", tmp_path / "traces.jsonl.gz"
    write_traces([Trace((1, 2), (3,)), Trace((1,), (4, 5))], plain)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_traces(packed) == read_traces(plain)
    packed.write_bytes(gzip.compress(b'{"prompt": [1], "emitted": "no"}'))
    with pytest.raises(ConfigError, match=r"traces\.jsonl\.gz, line 1: emitted is 'no'"):
        read_traces(packed)


@pytest.mark.parametrize(
    ("line", "param", "said"),
    [
        ("{", "trace", "not JSON"),
        ("3", "trace", "JSON object"),
        ('{"emitted": [1]}', "prompt", "prompt is None"),
        ('{"prompt": [1]}', "emitted", "emitted is None"),
        ('{"prompt": [], "emitted": [1]}', "prompt", "at least one token"),
        ('{"prompt": [1], "emitted": []}', "emitted", "at least one token"),
        ('{"prompt": [-1], "emitted": [1]}', "prompt", "a list of token ids"),
        ('{"prompt": [true], "emitted": [1]}', "prompt", "a list of token ids"),
        ('{"prompt": [1], "emitted": [1.5]}', "emitted", "a list of token ids"),
        ('{"prompt": [1], "emitted": [1, 2], "max_tokens": 1}', "max_tokens", "at least the 2"),
        ('{"prompt": [1], "emitted": [1], "max_tokens": "5"}', "max_tokens", "is '5'"),
        ('{"prompt": [1], "emitted": [1], "capacity": 0}', "capacity", "capacity is 0"),
        ('{"prompt": [1], "emitted": [1], "end_ids": 2}', "end_ids", "end_ids is 2"),
        ('{"prompt": [1], "emitted": [1], "name": 2}', "name", "it must be text"),
        ('{"prompt": [1], "emitted": [2, 1], "end_ids": [2]}', "emitted", "without an end token"),
    ],
)
def test_a_broken_line_is_refused_by_file_line_and_field(
    line: str, param: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text('{"prompt": [1], "emitted": [1]}\n' + line + "\n")
    with pytest.raises(ConfigError) as caught:
        read_traces(path)
    assert caught.value.param == param
    assert said in caught.value.message
    assert f"{path}, line 2" in caught.value.message


def test_a_long_value_is_shown_shortened() -> None:
    with pytest.raises(ConfigError) as caught:
        Trace.from_json('{"emitted": [1], "prompt": "' + "x" * 5000 + '"}')
    assert len(caught.value.message) < 120
