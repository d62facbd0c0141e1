"""A hub that says odd things: nothing leaves the store, and no content is taken on trust."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_hub import FakeHub, fake_hub
from surefoot.errors import ModelError
from surefoot.loading.store.download import CHUNK_BYTES, RemoteFile, unfinished_path
from surefoot.loading.store.hub import Hub
from surefoot.loading.store.models import ModelStore

CONTENT = b"GGUF" + bytes(range(256)) * 16
LONG = bytes(range(251)) * 9000
"""Eight pieces and a half."""


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub() as server:
        server.offer(m__gguf=CONTENT)
        yield server


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "far" / "home")


def pull(hub: FakeHub, store: ModelStore, file: str | None = None) -> Path:
    return Hub(hub.endpoint).pull("owner/name", file, store, lambda line: None)


def outside(store: ModelStore) -> list[Path]:
    """Files that are not below the store."""
    above = store.root.parent
    return [path for path in above.rglob("*") if path.is_file() and store.root not in path.parents]


@pytest.mark.parametrize("said", ["/../../../../../", "../../x", "a/b", "\0", ""])
def test_a_checksum_or_commit_is_no_path(said: str, hub: FakeHub, store: ModelStore) -> None:
    for remote in (RemoteFile("m.gguf", sha256=said), RemoteFile("m.gguf", commit=said)):
        path = unfinished_path(remote, store.root)
        assert path.parent == store.root
        assert path.name.startswith("m.gguf.")
    hub.claimed["m.gguf"] = said
    with pytest.raises(ModelError):
        pull(hub, store)
    assert outside(store) == []
    assert store.entries() == []


def test_git_s_name_of_the_content_is_checked_where_there_is_no_other(
    hub: FakeHub, store: ModelStore
) -> None:
    hub.claimed.clear()
    right = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest()
    hub.extra = {"blobId": "1" * 40}
    with pytest.raises(ModelError, match=rf"m.gguf: git's sha1 is {right}, the hub says 1111"):
        pull(hub, store)
    assert store.entries() == []
    hub.extra = {"blobId": right}
    assert pull(hub, store).read_bytes() == CONTENT


def test_a_checksum_may_be_written_large(hub: FakeHub, store: ModelStore) -> None:
    hub.claimed["m.gguf"] = hub.claimed["m.gguf"].upper()
    assert pull(hub, store).read_bytes() == CONTENT


def test_a_file_without_a_size_is_not_fetched(hub: FakeHub, store: ModelStore) -> None:
    hub.claimed.clear()
    hub.extra = {"size": None}
    with pytest.raises(ModelError, match=r"m\.gguf: the hub does not say how large it is"):
        pull(hub, store)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"rfilename": 5}, "a file's name is 5"),
        ({"rfilename": None}, "a file's name is None"),
        ({"size": "big"}, "a file's size is 'big'"),
        ({"lfs": {"sha256": 7, "size": 1, "pointerSize": 1}}, "a file's sha256 is 7"),
    ],
)
def test_what_is_no_file_is_one_line(
    extra: dict[str, object], message: str, hub: FakeHub, store: ModelStore
) -> None:
    hub.extra = extra
    with pytest.raises(ModelError, match=f"owner/name: the hub says that {message}"):
        pull(hub, store)


def test_a_pull_goes_on_as_long_as_it_gets_further(hub: FakeHub, store: ModelStore) -> None:
    """The client gives up at once when it is refused, or a connection is reset."""
    hub.offer(m__gguf=LONG)
    hub.faults = [3 * CHUNK_BYTES, "500", 2 * CHUNK_BYTES, "500"]
    assert pull(hub, store).read_bytes() == LONG
    assert [start // CHUNK_BYTES for _, start in hub.asked] == [0, 3, 3, 5, 5]


def test_a_line_that_gets_no_further_ends(hub: FakeHub, store: ModelStore) -> None:
    hub.faults = ["500"] * 20
    with pytest.raises(ModelError, match="cannot be fetched"):
        pull(hub, store)
    assert len(hub.asked) <= 3


def test_another_file_of_the_repository_keeps_its_beginning(
    hub: FakeHub, store: ModelStore
) -> None:
    hub.offer(m__gguf=LONG, n__gguf=CONTENT)
    hub.faults = [2 * CHUNK_BYTES, "500", "500"]
    with pytest.raises(ModelError, match="cannot be fetched"):
        pull(hub, store, "m.gguf")
    hub.faults.clear()
    pull(hub, store, "n.gguf")
    hub.asked.clear()
    assert pull(hub, store, "m.gguf").read_bytes() == LONG
    assert hub.asked == [("m.gguf", 2 * CHUNK_BYTES)]
    assert not (store.models / ".incoming" / "owner--name").exists()


def test_beginnings_of_a_content_that_is_gone_are_dropped(hub: FakeHub, store: ModelStore) -> None:
    with store.incoming("owner/name") as folder:
        unfinished_path(RemoteFile("m.gguf", "1" * 64), folder).write_bytes(b"old")
    pull(hub, store)
    assert not (store.models / ".incoming" / "owner--name").exists()


@pytest.mark.parametrize("name", ["a\nb.gguf", "\x1b[31mred.gguf", "x" * 300 + ".gguf"])
def test_a_name_that_no_terminal_should_see(name: str, hub: FakeHub, store: ModelStore) -> None:
    hub.files.clear()
    hub.offer_files({name: CONTENT})
    with pytest.raises(ModelError, match="is not a model name") as caught:
        pull(hub, store)
    assert caught.value.message.isprintable()
    assert hub.asked == []


def test_a_link_to_nowhere_hides_no_other_model(hub: FakeHub, store: ModelStore) -> None:
    path = pull(hub, store)
    (store.models / "gone.gguf").symlink_to("nowhere")
    (path.parent / "config.json").symlink_to("nowhere")
    assert [entry.path for entry in store.entries()] == [path]


def test_more_than_was_announced_is_cut_and_forgotten(hub: FakeHub, store: ModelStore) -> None:
    hub.offer(m__gguf=LONG)
    hub.extra = {"size": CHUNK_BYTES + 1}
    with pytest.raises(ModelError, match=f"more arrives than the {CHUNK_BYTES + 1} bytes"):
        pull(hub, store)
    assert list(store.root.rglob("*.unfinished")) == []
    assert [start for _, start in hub.asked] == [0]
    hub.extra = {}
    assert pull(hub, store).read_bytes() == LONG
