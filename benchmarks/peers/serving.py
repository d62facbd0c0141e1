"""A small HTTP server in front of an engine: streamed chat and health, nothing else.

One request at a time. The cost on top of the engine is one write a token (some tens of
microseconds), so an engine is not slowed by more than a percent at a hundred tokens a second.
"""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from peers.engine import Engine

MAX_BODY = 1 << 20
BROKEN = "\ufffd"
"""What decoding half a character gives: its tokens are held until the rest is there."""


def make_server(engine: Engine, port: int) -> HTTPServer:
    """On the loopback; `serve_forever()` answers until `shutdown()`. Port 0 takes any free one."""
    handler = type("EngineHandler", (ChatHandler,), {"engine": engine})
    return HTTPServer(("127.0.0.1", port), handler)


class ChatHandler(BaseHTTPRequestHandler):
    """The stream ends with the connection, so no length is told and nothing is chunked."""

    engine: Engine

    def do_GET(self) -> None:
        self._answer_json({"status": "ok", "version": self.engine.version})

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length", "0")), MAX_BODY)
        body = json.loads(self.rfile.read(length))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        began = time.perf_counter()
        prompt_ids = self.engine.encode(body["messages"])
        told = first = began
        count = 0
        held: list[int] = []
        for piece in self.engine.generate(prompt_ids, body["max_tokens"]):
            told = time.perf_counter()
            first = told if count == 0 else first
            count += len(piece)
            held += piece
            text = self.engine.decode(held)
            if text and not text.endswith(BROKEN):
                self._event({"choices": [{"index": 0, "delta": {"content": text}}]})
                held.clear()
        self._event(ending(len(prompt_ids), count, first - began, told - first))
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Silent: a line a request would be work of its own."""

    def _event(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def _answer_json(self, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def ending(prompt: int, tokens: int, prompt_s: float, decode_s: float) -> dict[str, Any]:
    """The finish chunk with usage and timings."""
    return {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens},
        "timings": {
            "prompt_n": prompt,
            "prompt_ms": 1000.0 * prompt_s,
            "predicted_n": tokens,
            "predicted_ms": 1000.0 * decode_s,
        },
    }
