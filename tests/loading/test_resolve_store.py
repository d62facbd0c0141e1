"""The store's layout, and what a reference after `-m` resolves to."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from surefoot.errors import ModelError, NotFoundError
from surefoot.loading.store.hub import Hub
from surefoot.loading.store.models import ModelStore
from surefoot.loading.store.resolve import resolve_model


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "home")


def put(store: ModelStore, relative: str, content: bytes = b"x") -> Path:
    path = store.models / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_an_unused_store_is_empty_and_writes_nothing(store: ModelStore) -> None:
    assert store.entries() == []
    assert not store.root.exists()


def test_entries_are_named_by_where_they_lie(store: ModelStore) -> None:
    put(store, "default/small.gguf", b"123")
    put(store, "owner/name/sub/big.gguf")
    put(store, "owner/name/a.gguf")
    put(store, "by-hand.gguf")
    put(store, ".incoming/owner--name/half.gguf")
    put(store, "owner/name/README.md")
    assert [(entry.ref, entry.size) for entry in store.entries()] == [
        ("by-hand.gguf", 1),
        ("default", 3),
        ("owner/name:a.gguf", 1),
        ("owner/name:sub/big.gguf", 1),
    ]


def test_a_repository_name_is_enough_for_its_only_file(store: ModelStore) -> None:
    path = put(store, "owner/name/a.gguf")
    assert resolve_model("owner/name", store) == path
    assert resolve_model("owner/name:a.gguf", store) == path
    put(store, "owner/name/b.gguf")
    with pytest.raises(ModelError, match=r"name one of owner/name:a.gguf, owner/name:b.gguf"):
        resolve_model("owner/name", store)


def test_removing_a_model_removes_the_folders_it_leaves_empty(store: ModelStore) -> None:
    put(store, "owner/name/sub/a.gguf")
    put(store, "owner/other/b.gguf")
    store.remove("owner/name")
    assert sorted(path.name for path in (store.models / "owner").iterdir()) == ["other"]
    with pytest.raises(NotFoundError, match="owner/name is not in the store"):
        store.remove("owner/name")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("owner/name", "../x.gguf"),
        ("../name", "x.gguf"),
        ("o/n", "/etc/x.gguf"),
        (".incoming", "x"),
    ],
)
def test_no_name_leads_out_of_the_store(store: ModelStore, name: str, file: str) -> None:
    with pytest.raises(ModelError, match="is not a model name"):
        store.path_of(name, file)


def test_what_a_broken_download_left_is_there_for_the_next(store: ModelStore) -> None:
    def break_off() -> None:
        with store.incoming("owner/name") as folder:
            (folder / "half").write_bytes(b"12")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        break_off()
    with store.incoming("owner/name") as folder:
        assert (folder / "half").read_bytes() == b"12"
    assert folder.exists()
    with store.incoming("owner/name") as folder:
        (folder / "half").unlink()
    assert not folder.exists()


def test_a_path_is_itself(store: ModelStore, tmp_path: Path) -> None:
    file = tmp_path / "some.gguf"
    file.write_bytes(b"x")
    assert resolve_model(str(file), store) == file


def test_a_folder_is_its_only_model_file(store: ModelStore, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no \.gguf file"):
        resolve_model(str(tmp_path), store)
    (tmp_path / "a.gguf").write_bytes(b"x")
    assert resolve_model(str(tmp_path), store) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"several model files; name one of a\.gguf, b\.gguf"):
        resolve_model(str(tmp_path), store)


class UnreachableHub(Hub):
    def pull(self, *_: object) -> Path:
        raise AssertionError("nobody means a repository by this")


@pytest.mark.parametrize(
    "ref", ["models/none.gguf", "./a/b", "../a", "/no/such", "word", "", "a b/c"]
)
def test_a_missing_file_is_never_looked_for_on_the_hub(store: ModelStore, ref: str) -> None:
    with pytest.raises(ModelError, match=r"no such file, folder or stored model|holds no"):
        resolve_model(ref, store, hub=UnreachableHub())


def test_who_waits_for_another_download_is_told(store: ModelStore) -> None:
    told = threading.Event()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        told.set()

    def second() -> None:
        with store.incoming("owner/name", say):
            lines.append("in")

    with store.incoming("owner/name", lines.append):
        other = threading.Thread(target=second)
        other.start()
        assert told.wait(30)
        lines.append("out")
    other.join(30)
    assert lines == ["another program is fetching owner/name: waiting for it", "out", "in"]
