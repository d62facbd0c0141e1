"""`surefoot serve` as a process: from the first millisecond to SIGTERM."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from support.serve_process import TIMEOUT_S, ServeProcess, served
from surefoot.cli.serve import allowed_hosts, api_keys
from surefoot.errors import ConfigError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home: Path, default_gguf_path: Path) -> Iterator[ServeProcess]:
    arguments = ("-m", str(default_gguf_path), "--alias", "tiny", "--ctx", "512", "--parallel", "2")
    arguments += ("--draft-kind", "none")
    with served(*arguments, home=home) as process:
        yield process


def test_it_answers_503_while_it_loads_and_the_first_200_means_ready(server: ServeProcess) -> None:
    statuses = []
    deadline = time.monotonic() + TIMEOUT_S
    while not statuses or statuses[-1] != 200:
        assert time.monotonic() < deadline, statuses[-3:]
        time.sleep(0.02)  # leaves the server some of the processor
        status, body = server.get("/health")
        statuses.append(status)
        assert body["status"] == ("ok" if status == 200 else "loading")
    assert set(statuses) <= {503, 200}
    server.wait_for(r"ready in [\d.]+ s: (http://127\.0\.0\.1:\d+/v1)")
    assert any("room: 2 rows of 512 tokens" in line for line in server.log)


def test_the_openai_client_streams_and_waits_alike(server: ServeProcess) -> None:
    messages = [{"role": "user", "content": "Name three kinds of tea."}]
    with OpenAI(base_url=server.url + "/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        whole = client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=12, temperature=0
        )
        stream = client.chat.completions.create(
            model="SmolLM2-135M-Instruct.Q4_1",
            messages=messages,
            max_tokens=12,
            temperature=0,
            stream=True,
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12


def test_a_taken_port_fails_before_anything_is_loaded(server: ServeProcess) -> None:
    port = server.url.rsplit(":", 1)[1]
    done = subprocess.run(
        [sys.executable, "-m", "surefoot", "serve", "--port", port, "-m", "/no/such/model.gguf"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"surefoot: error: port {port} on 127.0.0.1 is taken by another program\n"
    )
    assert server.get("/health")[0] == 200


def test_sigterm_ends_it_with_code_0(server: ServeProcess) -> None:
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(TIMEOUT_S) == 0
    with socket.socket() as probe:
        host, port = server.url.removeprefix("http://").split(":")
        assert probe.connect_ex((host, int(port))) != 0


def test_a_model_that_cannot_be_loaded_ends_it_with_one_line(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, perhaps")
    with served("-m", str(broken), home=home) as process:
        process.wait_for(r"(surefoot: error: broken\.gguf: .+)")
        assert process.process.wait(TIMEOUT_S) == 1
        assert "Traceback" not in "".join(process.log)


def test_keys_come_from_flags_and_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\n one \n\ntwo\n")
    assert api_keys(["flag"], None) == ("flag",)
    assert api_keys(["flag"], path) == ("flag", "one", "two")
    path.write_text("# none\n")
    with pytest.raises(ConfigError, match="holds no API key"):
        api_keys([], path)


@pytest.mark.parametrize(
    ("host", "further", "wanted"),
    [
        ("127.0.0.1", [], ("localhost", "127.0.0.1", "::1", "127.0.0.1")),
        ("127.0.0.1", ["me.example"], ("localhost", "127.0.0.1", "::1", "127.0.0.1", "me.example")),
        ("0.0.0.0", [], None),
        ("0.0.0.0", ["me.example"], ("me.example",)),
    ],
)
def test_hosts_it_answers_to(host: str, further: list[str], wanted: tuple[str, ...] | None) -> None:
    assert allowed_hosts(host, further) == wanted
