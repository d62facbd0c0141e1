"""What users' model files are like: kinds, tokenizers, templates and end tokens that are odd."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.serve_process import TIMEOUT_S, ServeProcess, served
from support.text_folders import write_hf_folder
from support.tiny_models import text_model, write_gguf
from support.tiny_text import CHATML
from surefoot.app.stack import text_of
from surefoot.cli.program import run
from surefoot.loading.open import load_model

MODEL = text_model()
FLAGS = ("--ctx", "128", "-n", "4", "-p", "hello")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREFOOT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write(path: Path, **changes: object) -> Path:
    """The good file with metadata of its text changed; None removes a key, `__` is a dot."""
    metadata = MODEL.metadata()
    for name, value in changes.items():
        metadata["tokenizer." + name.replace("__", ".")] = value
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return write_gguf(path, metadata, MODEL.tensors(), MODEL.kind_of)


def post(server: ServeProcess, path: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(server.url + path, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_without_a_template_there_is_one_warning_and_no_chat(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", chat_template=None)
    flags = ("--ctx", "128", "--parallel", "1", "--draft-kind", "none")
    with served("-m", str(path), *flags, home=home) as server:
        server.wait_for("(ready in)")
        told = [line for line in server.log if "chat template" in line]
        assert told == [
            "warning: the model has no chat template; only /v1/completions answers "
            "(--chat-template FILE gives it one)\n"
        ]
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        status, body = post(server, "/v1/chat/completions", chat)
        assert (status, body["error"]["param"]) == (400, "messages")  # type: ignore[index]
        status, _ = post(server, "/v1/completions", {"prompt": "hi", "max_tokens": 4})
        assert status == 200


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ggml__pre": "nonsense"}, "pre-tokenizer 'nonsense' is not supported; supported: "),
        ({"ggml__pre": "nonsense"}, "--pre-tokenizer takes it instead"),
        ({"ggml__pre": None}, "give it by hand (--pre-tokenizer), one of: deepseek-r1-qwen, "),
        ({"chat_template": "{% if"}, "has an error in line 1: "),
        ({"chat_template": "{% if"}, "; --chat-template FILE takes another"),
        ({"chat_template": "{{ messages | nope }}"}, "No filter named 'nope'"),
        ({"chat_template": "{{ .Prompt }}"}, "is a Go template (Ollama's form), not a Jinja templ"),
        ({"chat_template": "{{ .Prompt }}"}, "; --chat-template FILE takes another"),
        ({"ggml__model": "t5"}, "tokenizer model 't5' (tokenizer.ggml.model) is not supported"),
    ],
)
def test_what_is_not_known_is_refused_with_what_to_do(
    changes: dict[str, object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "-m", str(write(tmp_path / "m.gguf", **changes)), *FLAGS]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("surefoot: error: m.gguf: ")
    assert words in line


def test_a_pre_tokenizer_by_hand(tmp_path: Path) -> None:
    for name, pre in (("a.gguf", None), ("b.gguf", "nonsense")):
        path = write(tmp_path / name, ggml__pre=pre)
        assert run(["generate", "-m", str(path), "--pre-tokenizer", "smollm", *FLAGS]) == 0


@pytest.mark.parametrize("own", [None, "", "{% if", "{{ .Prompt }}"])
def test_a_template_by_hand(
    own: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text is that of the good file, whose own template it is."""
    template = tmp_path / "chatml.jinja"
    template.write_text(CHATML)
    model = write(tmp_path / "m.gguf", chat_template=own)
    good = write(tmp_path / "good.gguf")
    texts = []
    for arguments in (["-m", str(model), "--chat-template", str(template)], ["-m", str(good)]):
        assert run(["generate", "--temp", "0", *arguments, *FLAGS]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_a_template_by_hand_for_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_hf_folder(tmp_path / "small")
    (folder / "chat_template.jinja").unlink()
    assert run(["generate", "-m", str(folder), *FLAGS]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        "surefoot: error: small has no chat template: --chat-template FILE gives one, "
        "`generate --raw` needs none"
    )
    template = tmp_path / "chatml.jinja"
    template.write_text(CHATML)
    assert run(["generate", "-m", str(folder), "--chat-template", str(template), *FLAGS]) == 0


def test_a_template_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "m.gguf")
    missing = tmp_path / "none.jinja"
    assert run(["generate", "-m", str(model), "--chat-template", str(missing), *FLAGS]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"surefoot: error: --chat-template {missing} cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, {0, 2}),
        # The base model's end token in the metadata; the template ends turns with another one.
        ({"ggml__eos_token_id": 0}, {0, 2}),
        ({"ggml__eos_token_id": 0, "ggml__eot_token_id": 1}, {0, 1, 2}),
        (
            {
                "ggml__eos_token_id": 0,
                "chat_template": "{% for m in messages %}{{ m.content }}<think>{% endfor %}",
            },
            {0, 2},
        ),
    ],
)
def test_all_end_tokens_end_a_reply(
    changes: dict[str, object], ends: set[int], tmp_path: Path
) -> None:
    tokenizer, _ = text_of(load_model(write(tmp_path / "m.gguf", **changes)))
    assert tokenizer.end_ids == ends


def test_a_folders_end_tokens_come_from_all_its_files(tmp_path: Path) -> None:
    folder = write_hf_folder(tmp_path / "m")
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 7]}')
    tokenizer, _ = text_of(load_model(folder))
    assert tokenizer.end_ids == {0, 2, 7}


@pytest.mark.parametrize("source", [CHATML, "{{ bos_token }}" + CHATML])
def test_the_begin_token_comes_once(source: str, tmp_path: Path) -> None:
    changes = {"ggml__add_bos_token": True, "ggml__bos_token_id": 0, "chat_template": source}
    path = write(tmp_path / "m.gguf", **changes)
    tokenizer, template = text_of(load_model(path))
    assert template is not None
    ids = template.encode_chat(tokenizer, [{"role": "user", "content": "hi <|endoftext|>"}])
    assert ids[0] == 0
    assert ids.count(0) == 1
