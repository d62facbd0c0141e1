"""`surefoot list`, `rm`, `pull` and `inspect` over a store of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from support.tiny_models import TinyModel
from surefoot.cli.inspect import fits
from surefoot.cli.program import run
from surefoot.engine.graph_cache import hold
from surefoot.loading.store.models import ModelStore


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREFOOT_HOME", str(tmp_path))
    return tmp_path / "models"


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_list_of_an_empty_store(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("the store is empty")
    assert run(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_list_rm_list(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(models / "owner" / "name" / "a.gguf", b"x" * 1500)
    put(models / "owner" / "other" / "b.gguf", b"x")
    assert run(["list", "-q"]) == 0
    assert capsys.readouterr().out == "owner/name:a.gguf\nowner/other:b.gguf\n"
    assert run(["list"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"owner/name:a.gguf      1.5 KB  {models}/owner/name/a.gguf"
    assert run(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "model": "owner/name:a.gguf",
        "size": 1500,
        "path": f"{models}/owner/name/a.gguf",
    }
    assert run(["rm", "owner/name"]) == 0
    assert capsys.readouterr().err == "removed owner/name:a.gguf (1.5 KB)\n"
    assert run(["list", "-q"]) == 0
    assert capsys.readouterr().out == "owner/other:b.gguf\n"
    assert run(["rm", "owner/name"]) == 1
    assert "is not in the store" in capsys.readouterr().err


def test_rm_takes_unfinished_downloads_too(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(models / ".incoming" / "owner--name" / "a.gguf.0.unfinished", b"x" * 3000)
    assert run(["list", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["rm", "owner/name:a.gguf"]) == 0
    assert capsys.readouterr().err == (
        "removed an unfinished download of owner/name:a.gguf (3.0 KB)\n"
    )
    assert not (models / ".incoming" / "owner--name").exists()
    put(models / ".incoming" / "owner--name" / "b.gguf.0.unfinished", b"x")
    put(models / "owner" / "name" / "a.gguf", b"x" * 1500)
    assert run(["rm", "owner/name"]) == 0
    assert capsys.readouterr().err == (
        "removed an unfinished download of owner/name (1 B)\nremoved owner/name:a.gguf (1.5 KB)\n"
    )


@pytest.mark.parametrize("ref", ["..", ".", "", "default", "../..", "owner--name"])
def test_rm_of_what_is_no_model_touches_nothing(
    ref: str, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = models / ".incoming" / "owner--name" / "a.gguf.0.unfinished"
    put(kept, b"x")
    assert run(["rm", ref]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert kept.exists()


def test_rm_while_it_is_being_fetched(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ModelStore(models.parent).incoming("owner/name") as folder:
        (folder / "a.gguf.0.unfinished").write_bytes(b"x")
        assert run(["rm", "owner/name"]) == 1
        assert capsys.readouterr().err == (
            "surefoot: error: owner/name is being fetched by another process\n"
        )
        assert (folder / "a.gguf.0.unfinished").exists()


def test_rm_of_graphs_leaves_the_models(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(models / "owner" / "name" / "a.gguf", b"x")
    put(models.parent / "graphs" / "one" / "packed.bin", b"x" * 2000)
    assert run(["rm"]) == 1
    assert capsys.readouterr().err == "surefoot: error: name a model to delete, or --graphs\n"
    assert run(["rm", "--graphs"]) == 0
    assert capsys.readouterr().err == "removed the packed graphs (2.0 KB)\n"
    assert not (models.parent / "graphs").exists()
    assert run(["list", "-q"]) == 0
    assert capsys.readouterr().out == "owner/name:a.gguf\n"
    assert run(["rm", "--graphs"]) == 0
    assert capsys.readouterr().err == "removed the packed graphs (0 B)\n"


def test_rm_of_graphs_keeps_those_in_use(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = models.parent / "graphs"
    put(graphs / "one" / "packed.bin", b"x" * 2000)
    put(graphs / "two" / "packed.bin", b"x" * 3000)
    with hold(graphs / "two"):
        assert run(["rm", "--graphs"]) == 0
        assert capsys.readouterr().err == (
            "removed the packed graphs (2.0 KB)\n"
            "kept 1 in use (3.0 KB): end the programs that serve them and try again\n"
        )
    assert [path.name for path in graphs.iterdir()] == ["two"]


def test_pull_of_what_is_there_fetches_nothing(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(models / "owner" / "name" / "a.gguf", b"x")
    assert run(["pull", "owner/name"]) == 0
    assert capsys.readouterr().err == f"owner/name is ready: {models}/owner/name/a.gguf (1 B)\n"


def test_inspect_shows_the_default_model(
    default_gguf_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(default_gguf_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    facts = {label: text.strip() for label, _, text in (line.partition(":") for line in lines)}
    assert facts["model"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert facts["architecture"] == (
        "llama, 30 layers, width 576 (1536 inside), 9 heads, 3 of keys and values of 64"
    )
    assert facts["vocabulary"] == "49,152 tokens, tied"
    assert facts["context"] == "8,192 tokens, rope base 100000"
    assert facts["weights"] == "96.6 MB"
    assert facts["KV cache"] == "46.1 MB per 1,000 tokens, 377.5 MB a full context"
    assert any("Q4_1 in 210 tensors" in line for line in lines)
    assert run(["inspect", "--json", str(default_gguf_path)]) == 0
    exact = json.loads(capsys.readouterr().out)
    assert exact["kv_bytes_per_1000_tokens"] == 2 * 30 * 3 * 64 * 4 * 1000
    assert exact["tensor_types"] == {"Q4_1": 210, "F32": 61, "Q8_0": 1}


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (
            (),
            [
                "F16 in 15 tensors: float32, exactly",
                "F32 in 5 tensors: float32, exactly",
            ],
        ),
        (
            ("--quantize", "q8"),
            [
                "F16 in 15 tensors: 8 bits, blocks of 32, "
                "off by at most 0.38% of the largest value",
                "F32 in 5 tensors: float32, exactly",
            ],
        ),
    ],
)
def test_inspect_says_which_types_are_exact(
    flags: tuple[str, ...],
    lines: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = TinyModel(linear=Type.F16, tied=True).write(tmp_path / "tiny.gguf")
    assert run(["inspect", str(path), *flags]) == 0
    first = capsys.readouterr().out.splitlines()
    start = next(place for place, line in enumerate(first) if line.startswith("computed as:"))
    assert [line[15:] for line in first[start : start + 2]] == lines
    assert first[start + 2].startswith("weights:")


def test_inspect_says_what_each_kind_of_block_is_computed_as(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = TinyModel(linear=Type.Q4_1, embedding=Type.Q8_0).write(tmp_path / "tiny.gguf")
    assert run(["inspect", str(path), "--json"]) == 0
    computed = json.loads(capsys.readouterr().out)["computed"]
    assert [(e["type_name"], e["num_tensors"], e["form"], e["exact"]) for e in computed] == [
        ("Q4_1", 14, "4 bits, blocks of 32, offsets", True),
        ("F32", 5, "float32", True),
        ("Q8_0", 2, "8 bits, blocks of 32", True),
    ]


def test_inspect_of_a_file_that_is_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    assert run(["inspect", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("surefoot: error: broken.gguf: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("free", "wanted"),
    [
        (None, None),
        (99, {"tokens": 0, "full_rows": 0}),
        (100 + 10 * 29, {"tokens": 29, "full_rows": 2}),
    ],
)
def test_what_fits(free: int | None, wanted: dict[str, int] | None) -> None:
    assert fits(free, weight_bytes=100, kv_bytes_per_token=10, context_length=10) == wanted
