"""Pulling from a hub: a small one served by the test itself."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from surefoot.errors import ModelError
from surefoot.loading.hub import Hub, RemoteFile, choose_files
from surefoot.loading.resolve import resolve_model
from surefoot.loading.store import ModelStore

CONTENT = b"weights" * 5000


class FakeHub(ThreadingHTTPServer):
    """Serves `files` of the repository owner/name; `claimed` are the checksums it gives."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"README.md": b"hello", "m.gguf": CONTENT}
        self.claimed = {"m.gguf": hashlib.sha256(CONTENT).hexdigest()}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeHub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = self.path.split("?")[0]
        if path == "/api/models/owner/name":
            return self._send(200, json.dumps(self._info()).encode(), body)
        file = path.removeprefix("/owner/name/resolve/main/")
        if file not in self.server.files:
            return self._send(404, b"", body, {"X-Error-Code": "RepoNotFound"})
        content = self.server.files[file]
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": "c" * 40}
        return self._send(200, content, body, headers)

    def _info(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for name, content in self.server.files.items():
            entry: dict[str, object] = {"rfilename": name, "size": len(content)}
            if name in self.server.claimed:
                lfs = {"sha256": self.server.claimed[name], "size": len(content), "pointerSize": 1}
                entry["lfs"] = lfs
            siblings.append(entry)
        return {"id": "owner/name", "siblings": siblings}

    def _send(
        self, status: int, content: bytes, body: bool, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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


def test_a_wrong_checksum_keeps_nothing(hub: FakeHub, store: ModelStore) -> None:
    hub.claimed["m.gguf"] = "0" * 64
    with pytest.raises(ModelError, match=r"m.gguf: sha256 is .*, the hub says 0000"):
        resolve_model("owner/name", store, hub=Hub(hub.endpoint))
    assert store.entries() == []


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
    ],
)
def test_the_files_are_chosen(file: str | None, names: list[str], wanted: list[str]) -> None:
    chosen = choose_files("o/n", file, [RemoteFile(name, None) for name in names])
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
    ],
)
def test_a_choice_that_cannot_be_made(file: str | None, names: list[str], message: str) -> None:
    with pytest.raises(ModelError) as error:
        choose_files("o/n", file, [RemoteFile(name, None) for name in names])
    assert message in error.value.message
