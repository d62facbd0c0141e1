"""Pulling from a hub: a small one served by the test itself."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_hub import FakeHub, fake_hub
from surefoot.errors import ModelError
from surefoot.loading.store.download import RemoteFile, unfinished_path
from surefoot.loading.store.hub import Hub, choose_files
from surefoot.loading.store.models import ModelStore
from surefoot.loading.store.resolve import resolve_model

CONTENT = b"weights" * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub() as server:
        server.offer(m__gguf=CONTENT)
        server.files["README.md"] = b"hello"
        yield server


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "home")


def test_a_pulled_file_is_in_the_store_and_served_offline(hub: FakeHub, store: ModelStore) -> None:
    said: list[str] = []
    path = resolve_model("owner/name", store, hub=Hub(hub.endpoint), say=said.append)
    assert path == store.models / "owner" / "name" / "m.gguf"
    assert path.read_bytes() == CONTENT
    assert said == ["fetching owner/name:m.gguf"]
    hub.files.clear()
    assert resolve_model("owner/name:m.gguf", store, hub=Hub(hub.endpoint)) == path


BIG = os.urandom(1 << 20) * 25
PIECE = 15 << 20
"""Where connections break: whole pieces of `CHUNK_BYTES`, so that what came before is all there."""


def test_a_broken_connection_is_taken_up_where_it_broke(
    hub: FakeHub, store: ModelStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Within one pull, by the client itself."""
    hub.offer(m__gguf=BIG)
    hub.faults = [PIECE]
    with caplog.at_level(logging.ERROR):
        path = resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert hub.asked == [("m.gguf", 0), ("m.gguf", PIECE)]
    assert path.read_bytes() == BIG


def test_a_pull_that_failed_is_resumed_by_the_next(hub: FakeHub, store: ModelStore) -> None:
    hub.offer(m__gguf=BIG)
    hub.faults = [PIECE, "500", "500"]
    with pytest.raises(ModelError, match=r"owner/name:m\.gguf .*cannot be fetched: .*500") as error:
        resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert "\n" not in error.value.message
    assert store.entries() == []
    said: list[str] = []
    hub.asked.clear()
    path = resolve_model("owner/name", store, hub=Hub(hub.endpoint), say=said.append)
    assert said == ["resuming owner/name:m.gguf"]
    assert hub.asked == [("m.gguf", PIECE)]
    assert path.read_bytes() == BIG
    assert not (store.models / ".incoming" / "owner--name").exists()


def leave_unfinished(store: ModelStore, claimed: str, content: bytes) -> None:
    """As a pull that was interrupted does."""
    with contextlib.suppress(KeyboardInterrupt), store.incoming("owner/name") as folder:
        unfinished_path(RemoteFile("m.gguf", claimed), folder).write_bytes(content)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("claimed", "begun", "start"),
    [
        (SHA256, CONTENT[:1000], 1000),
        (SHA256, CONTENT, None),
        ("1" * 64, CONTENT[:1000], 0),
        (SHA256, CONTENT + b"x", 0),
    ],
    ids=["half", "all", "another content", "too much"],
)
def test_what_was_begun_is_gone_on_from_if_it_can_be(
    claimed: str, begun: bytes, start: int | None, hub: FakeHub, store: ModelStore
) -> None:
    leave_unfinished(store, claimed, begun)
    path = resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert hub.asked == ([] if start is None else [("m.gguf", start)])
    assert path.read_bytes() == CONTENT


def test_a_wrong_beginning_is_found_out_and_dropped(hub: FakeHub, store: ModelStore) -> None:
    leave_unfinished(store, SHA256, b"y" * 1000)
    with pytest.raises(ModelError, match=r"m\.gguf: sha256 is .*, the hub says"):
        resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert resolve_model("owner/name", store, hub=Hub(hub.endpoint)).read_bytes() == CONTENT
    assert hub.asked == [("m.gguf", 1000), ("m.gguf", 0)]


def test_files_that_came_whole_are_not_fetched_again(hub: FakeHub, store: ModelStore) -> None:
    parts = [f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    hub.files.clear()
    hub.offer_files({part: part.encode() for part in parts})
    hub.claimed[parts[1]] = "0" * 64
    with pytest.raises(ModelError, match=r"big-00002-of-00002\.gguf: sha256 is"):
        resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    hub.offer_files({parts[1]: b"right"})
    hub.asked.clear()
    path = resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert hub.asked == [(parts[1], 0)]
    assert [part.read_bytes() for part in sorted(path.parent.iterdir())] == [
        parts[0].encode(),
        b"right",
    ]


def test_a_file_cut_short_by_its_server_is_not_kept(hub: FakeHub, store: ModelStore) -> None:
    """The hub says how long a file is, and gives no checksum of it."""
    hub.claimed.clear()
    hub.faults = [len(CONTENT) // 2, "500", "500", "500"]
    with pytest.raises(ModelError, match="cannot be fetched"):
        resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert store.entries() == []


def test_a_wrong_checksum_keeps_nothing(hub: FakeHub, store: ModelStore) -> None:
    hub.claimed["m.gguf"] = "0" * 64
    with pytest.raises(ModelError, match=r"m.gguf: sha256 is .*, the hub says 0000"):
        resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert store.entries() == []
    hub.offer(m__gguf=CONTENT)
    assert resolve_model("owner/name", store, hub=Hub(hub.endpoint)).read_bytes() == CONTENT


def test_an_unknown_repository_is_one_line(hub: FakeHub, store: ModelStore) -> None:
    with pytest.raises(ModelError, match="owner/other is not on the hub") as error:
        resolve_model("owner/other", store, hub=Hub(hub.endpoint))
    assert "\n" not in error.value.message


def test_offline_is_one_clear_line(store: ModelStore) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ModelError, match="owner/name is not in the store and cannot be"
        ) as error:
            resolve_model("owner/name:m.gguf", store, hub=Hub(endpoint))
    assert "\n" not in error.value.message


def test_all_parts_of_a_split_model_are_fetched(hub: FakeHub, store: ModelStore) -> None:
    parts = [f"q4/big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    hub.files = {part: part.encode() for part in parts}
    hub.claimed.clear()
    path = resolve_model(f"owner/name:{parts[1]}", store, hub=Hub(hub.endpoint))
    assert path == store.models / "owner" / "name" / parts[0]
    assert [(entry.ref, entry.size) for entry in store.entries()] == [
        (f"owner/name:{parts[0]}", 3 * len(parts[0]))
    ]
    store.remove("owner/name")
    assert store.entries() == []
    assert not (store.models / "owner").exists()


def test_a_whole_folder_is_fetched_without_what_is_not_read(
    hub: FakeHub, store: ModelStore
) -> None:
    read = ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]
    hub.files = dict.fromkeys([*read, "README.md", "onnx/model.onnx", "flax.msgpack"], b"12")
    hub.claimed.clear()
    path = resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert path == store.models / "owner" / "name"
    assert sorted(file.name for file in path.iterdir()) == sorted(read)
    assert [(entry.ref, entry.size) for entry in store.entries()] == [("owner/name", 8)]
    hub.files.clear()
    assert resolve_model("owner/name", store, hub=Hub(hub.endpoint)) == path
    store.remove("owner/name")
    assert not (store.models / "owner").exists()


def test_a_folder_that_broke_off_is_no_model_yet(hub: FakeHub, store: ModelStore) -> None:
    hub.files = {"config.json": b"{}", "model.safetensors": b"12", "tokenizer.json": b"{}"}
    hub.claimed = {"model.safetensors": "0" * 64}
    with pytest.raises(ModelError, match="the hub says"):
        resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert store.entries() == []
    hub.claimed.clear()
    assert resolve_model("owner/name", store, hub=Hub(hub.endpoint)).is_dir()


@pytest.mark.parametrize(
    ("file", "names", "wanted"),
    [
        (None, ["m.gguf", "README.md"], ["m.gguf"]),
        (None, ["m.gguf", "config.json", "model.safetensors"], ["m.gguf"]),
        ("b.gguf", ["a.gguf", "b.gguf"], ["b.gguf"]),
        (
            None,
            ["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"],
            ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"],
        ),
        (
            None,
            ["a-1.safetensors", "config.json", "model.safetensors.index.json", "x/y.safetensors"],
            ["config.json", "a-1.safetensors", "model.safetensors.index.json"],
        ),
        (
            None,
            ["config.json", "consolidated.safetensors", "model.safetensors", "pytorch_model.bin"],
            ["config.json", "model.safetensors"],
        ),
        (
            None,
            [
                "config.json",
                "consolidated.safetensors",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "model.safetensors.index.json",
            ],
            [
                "config.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "model.safetensors.index.json",
            ],
        ),
        (
            "m-00001-of-00001.gguf",
            ["m-00001-of-00001.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"],
            ["m-00001-of-00001.gguf"],
        ),
    ],
)
def test_the_files_are_chosen(file: str | None, names: list[str], wanted: list[str]) -> None:
    chosen = choose_files("o/n", file, [RemoteFile(name) for name in names])
    assert [remote.name for remote in chosen] == wanted


@pytest.mark.parametrize(
    ("file", "names", "message"),
    [
        (
            None,
            ["a.gguf", "b.gguf"],
            "several model files; name one as o/n:FILE, of a.gguf, b.gguf",
        ),
        (None, ["pytorch_model.bin", "config.json"], "o/n holds neither a .gguf file nor safetens"),
        ("c.gguf", ["a.gguf", "b.gguf"], "o/n has no model file c.gguf; it has a.gguf, b.gguf"),
        ("c.gguf", ["config.json"], "o/n has no model file c.gguf; it has none"),
        (
            None,
            ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"],
            "o/n has not all parts of m: m-00002-of-00003.gguf is missing",
        ),
    ],
)
def test_a_choice_that_cannot_be_made(file: str | None, names: list[str], message: str) -> None:
    with pytest.raises(ModelError) as error:
        choose_files("o/n", file, [RemoteFile(name) for name in names])
    assert message in error.value.message


def test_a_part_that_went_missing_or_was_cut_is_fetched_again(
    hub: FakeHub, store: ModelStore
) -> None:
    parts = [f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    hub.files = {part: part.encode() for part in parts}
    hub.claimed.clear()
    path = resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    path.with_name(parts[1]).unlink()
    path.with_name(parts[2]).write_bytes(b"b")
    hub.asked.clear()
    assert resolve_model("owner/name", store, hub=Hub(hub.endpoint)) == path
    assert [name for name, _ in hub.asked] == parts[1:]
    assert [path.with_name(part).read_text() for part in parts] == parts
    hub.asked.clear()
    assert resolve_model("owner/name", store, hub=Hub(hub.endpoint)) == path
    assert hub.asked == []
