"""A model's name in a request is compared, never opened."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from support.server_fakes import Harness, say

FILE_EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "exec")


class FileEvents:
    """What the interpreter reports of files; a hook cannot be taken out again, only put to rest."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self._watching = False
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._watching and event in FILE_EVENTS:
            self.seen.append((event, str(arguments[0])))

    @contextmanager
    def watched(self) -> Iterator[list[tuple[str, str]]]:
        self.seen.clear()
        self._watching = True
        try:
            yield self.seen
        finally:
            self._watching = False


EVENTS = FileEvents()


def test_the_hook_sees_a_file_that_is_opened() -> None:
    with EVENTS.watched() as seen, open(__file__, encoding="utf-8"):
        pass
    assert seen == [("open", __file__)]


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "owner/name:model.gguf",
        "~/.ssh/id_rsa",
        "default\x00.gguf",
        "C:\\windows\\win.ini",
        "a" * 5000,
    ],
)
def test_a_name_of_a_file_is_a_404_and_no_file_is_touched(name: str) -> None:
    harness = Harness(say("OK"))
    assert codes_of_all_routes(harness, "another") == ["model_not_found"] * 3
    with EVENTS.watched() as seen:
        assert codes_of_all_routes(harness, name) == ["model_not_found"] * 3
    assert seen == []


def codes_of_all_routes(harness: Harness, name: str) -> list[str]:
    replies = [
        harness.chat(model=name),
        harness.complete(model=name),
        harness.get("/v1/models/" + quote(name, safe="")),
    ]
    return [reply.json()["error"]["code"] for reply in replies]
