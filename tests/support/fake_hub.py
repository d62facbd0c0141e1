"""A Hugging Face hub of the test's own: one repository, on a real socket, that can break off."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40


class FakeHub(ThreadingHTTPServer):
    """Serves `files` of the repository owner/name; `claimed` are the checksums it gives.

    `faults`, used up one a request for a file's content: a number breaks the connection once so
    many bytes of the answer were sent, "500" refuses. `extra` is added to what is said of each
    file, `commit` is the repository's. `asked` lists the files whose content was asked for and the
    byte that each answer began at.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.claimed: dict[str, str] = {}
        self.faults: list[int | str] = []
        self.asked: list[tuple[str, int]] = []
        self.extra: dict[str, object] = {}
        self.commit: object = COMMIT

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def offer(self, **files: bytes) -> None:
        """Files and their true checksums; `__` in a name is a dot."""
        self.offer_files({name.replace("__", "."): content for name, content in files.items()})

    def offer_files(self, files: dict[str, bytes]) -> None:
        self.files |= files
        self.claimed |= {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}

    def offer_folder(self, folder: Path) -> None:
        """Every file below it."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        self.offer_files({str(path.relative_to(folder)): path.read_bytes() for path in paths})


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    with FakeHub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
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
        file = path.removeprefix(f"/owner/name/resolve/{COMMIT}/")
        if file not in self.server.files:
            return self._send(404, b"", body, {"X-Error-Code": "RepoNotFound"})
        content = self.server.files[file]
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return self._send_file(file, content, body, headers)

    def _info(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for name, content in self.server.files.items():
            entry: dict[str, object] = {"rfilename": name, "size": len(content)}
            if name in self.server.claimed:
                lfs = {"sha256": self.server.claimed[name], "size": len(content), "pointerSize": 1}
                entry["lfs"] = lfs
            siblings.append(entry | self.server.extra)
        return {"id": "owner/name", "sha": self.server.commit, "siblings": siblings}

    def _send_file(self, name: str, content: bytes, body: bool, headers: dict[str, str]) -> None:
        """All of it, or what follows the byte that a Range names."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        status = 200
        if asked:
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        fault = None
        if body:
            self.server.asked.append((name, start))
            fault = self.server.faults.pop(0) if self.server.faults else None
        if fault == "500":
            return self._send(500, b"", body)
        return self._send(status, content[start:], body, headers, fault)

    def _send(
        self,
        status: int,
        content: bytes,
        body: bool,
        headers: dict[str, str] | None = None,
        break_after: int | str | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and isinstance(break_after, int):
            self.wfile.write(content[:break_after])
            self.close_connection = True
        elif body:
            self.wfile.write(content)
