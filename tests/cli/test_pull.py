"""`surefoot pull` of every kind of repository, and then without a network: generate, list, rm."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from support.fake_hub import FakeHub, fake_hub
from support.serve_process import served
from support.text_folders import write_hf_folder, write_mlx_folder
from support.tiny_models import text_model
from surefoot.cli.program import run

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
UNREAD = {
    "README.md": b"hello",
    "pytorch_model.bin": b"pickled",
    "consolidated.00.pth": b"pickled",
    "consolidated.safetensors": b"the weights again",
    "onnx/model.onnx": b"a graph",
    "tf_model.h5": b"tensorflow",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("SUREFOOT_HOME", str(path))
    return path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with fake_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub whose port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{probe.getsockname()[1]}")


def generated(model: str, capsys: pytest.CaptureFixture[str]) -> str:
    flags = ["--ctx", "128", "-n", "6", "--deterministic", "-p", "hello", "-m", model]
    code = run(["generate", *flags])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def write_split(folder: Path) -> list[Path]:
    """A GGUF model in two parts, as `gguf-split` lays them out."""
    model = text_model()
    tensors = model.tensors()
    names = list(tensors)
    paths = [folder / f"tiny-0000{number}-of-00002.gguf" for number in (1, 2)]
    for place, path in enumerate(paths):
        writer = gguf.GGUFWriter(str(path), "llama")
        for key, value in (model.metadata() if place == 0 else {}).items():
            add = {
                bool: writer.add_bool,
                str: writer.add_string,
                float: writer.add_float32,
                int: writer.add_uint32,
                list: writer.add_array,
            }[type(value)]
            add(key, value)  # type: ignore[operator]
        writer.add_uint16("split.no", place)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(names))
        for name in names[place::2]:
            kind = model.kind_of(name)
            writer.add_tensor(name, gguf.quantize(tensors[name], kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


@pytest.mark.parametrize("kind", ["safetensors", "mlx"])
def test_a_folder_is_pulled_without_duplicates_and_runs_offline(
    kind: str,
    hub: FakeHub,
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = tmp_path / "source"
    folder = write_hf_folder(source, SHARDS) if kind == "safetensors" else write_mlx_folder(source)
    wanted = sorted(path.name for path in folder.iterdir())
    hub.offer_folder(folder)
    hub.offer_files(UNREAD)
    assert run(["pull", "owner/name"]) == 0
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"owner/name is ready: {home}/models/owner/name ({size / 1000:.1f} KB)"
    )
    assert sorted(path.name for path in (home / "models/owner/name").iterdir()) == wanted
    go_offline(monkeypatch)
    assert generated("owner/name", capsys) == generated(str(folder), capsys)
    assert run(["list", "-q"]) == 0
    assert capsys.readouterr().out == "owner/name\n"
    assert run(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"model": "owner/name", "size": size, "path": f"{home}/models/owner/name"}
    ]
    assert run(["rm", "owner/name"]) == 0
    assert not (home / "models/owner").exists()


def test_a_split_gguf_is_pulled_whole_and_runs_offline(
    hub: FakeHub,
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = write_split(tmp_path)
    hub.offer_files({f"q4/{part.name}": part.read_bytes() for part in parts})
    hub.offer(other__gguf=b"another model")
    ref = f"owner/name:q4/{parts[0].name}"
    assert run(["pull", "owner/name"]) == 1
    assert "several model files; name one as owner/name:FILE" in capsys.readouterr().err
    assert run(["pull", ref]) == 0
    size = sum(part.stat().st_size for part in parts)
    assert capsys.readouterr().err.splitlines() == [
        *(f"fetching owner/name:q4/{part.name}" for part in parts),
        f"{ref} is ready: {home}/models/owner/name/q4/{parts[0].name} ({size / 1000:.1f} KB)",
    ]
    go_offline(monkeypatch)
    whole = text_model().write(tmp_path / "whole.gguf")
    assert generated(ref, capsys) == generated(str(whole), capsys)
    assert run(["list", "-q"]) == 0
    assert capsys.readouterr().out == f"{ref}\n"
    assert run(["rm", ref]) == 0
    assert capsys.readouterr().err == f"removed {ref} ({size / 1000:.1f} KB)\n"
    assert not (home / "models/owner").exists()


def test_one_file_of_several_is_served_offline(
    hub: FakeHub, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.offer(tiny__gguf=text_model().write(tmp_path / "tiny.gguf").read_bytes())
    hub.offer(other__gguf=b"another model")
    assert run(["pull", "owner/name:tiny.gguf"]) == 0
    go_offline(monkeypatch)
    flags = ("--ctx", "128", "--parallel", "1", "--draft-kind", "none")
    with served("-m", "owner/name:tiny.gguf", *flags, home=home) as server:
        server.wait_for(r"(ready in)")
        status, models = server.get("/v1/models")
        assert status == 200
        assert [model["id"] for model in models["data"]] == ["tiny"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("ref", ["owner/name", "owner/name:tiny.gguf"])
def test_offline_a_missing_model_is_one_line(
    ref: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_offline(monkeypatch)
    for command in (["pull", ref], ["generate", "-p", "x", "-m", ref], ["inspect", ref]):
        assert run(command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(
            "surefoot: error: owner/name is not in the store and cannot be fetched: "
        )


def test_a_wrong_checksum_is_one_line(
    hub: FakeHub, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.offer(tiny__gguf=b"weights")
    hub.claimed["tiny.gguf"] = "0" * 64
    assert run(["pull", "owner/name"]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first == "fetching owner/name:tiny.gguf"
    assert last.startswith("surefoot: error: tiny.gguf: sha256 is ")
    assert last.endswith(f", the hub says {'0' * 64}")
    assert run(["list", "-q"]) == 0
    assert capsys.readouterr().out == ""
