"""What a folder's files say about text, file by file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surefoot.errors import ModelError
from surefoot.loading.hf.text_files import read_text_files
from surefoot.loading.model import TextFiles


def write(folder: Path, **files: object) -> Path:
    """JSON files by name without its end; text is written as it is."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text)
    return folder


def read(folder: Path, **files: object) -> TextFiles:
    text = read_text_files(write(folder, tokenizer={}, **files))
    assert text is not None
    return text


def test_without_tokenizer_json_there_is_nothing(tmp_path: Path) -> None:
    assert read_text_files(write(tmp_path, tokenizer_config={"bos_token": "<s>"})) is None


def test_with_tokenizer_json_alone(tmp_path: Path) -> None:
    wanted = TextFiles(tmp_path / "tokenizer.json", None, None, None, (), None)
    assert read(tmp_path) == wanted


@pytest.mark.parametrize(
    ("generation", "config", "ids"),
    [
        (None, None, ()),
        (2, None, (2,)),
        (None, 2, (2,)),
        ([128001, 128008, 128009], 128001, (128001, 128008, 128009)),
        ([5, 5], 3, (3, 5)),
        ([True, "7", 1.5, None, 9], False, (9,)),
        ({"a": 1}, "2", ()),
    ],
)
def test_end_tokens_of_both_files(
    generation: object, config: object, ids: tuple[int, ...], tmp_path: Path
) -> None:
    files = {
        "generation_config": {"eos_token_id": generation},
        "config": {"eos_token_id": config},
    }
    assert read(tmp_path, **files).end_ids == ids


@pytest.mark.parametrize(
    ("said", "text"),
    [("<s>", "<s>"), ({"content": "<s>", "lstrip": False}, "<s>"), (None, None), (5, None),
     ({}, None)],
)  # fmt: skip
def test_begin_and_end_texts(said: object, text: str | None, tmp_path: Path) -> None:
    found = read(tmp_path, tokenizer_config={"bos_token": said, "eos_token": said})
    assert (found.bos_text, found.eos_text) == (text, text)


@pytest.mark.parametrize(
    ("said", "wanted"), [(True, True), (False, False), (None, None), (1, None), ("true", None)]
)
def test_whether_a_prompt_begins_with_the_token(
    said: object, wanted: bool | None, tmp_path: Path
) -> None:
    assert read(tmp_path, tokenizer_config={"add_bos_token": said}).add_bos is wanted


NAMED = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]


@pytest.mark.parametrize(
    ("settings", "own_json", "own_file", "template"),
    [
        (None, None, None, None),
        ("s", None, None, "s"),
        ("s", "j", None, "s"),
        ("s", "j", "f", "f"),
        (None, "j", None, "j"),
        (NAMED, None, None, "d"),
        (NAMED[:1], None, None, None),
        (NAMED[:1], "j", None, "j"),
        (["text", 5], None, None, None),
        (5, None, None, None),
        (None, 5, None, None),
    ],
)
def test_where_the_template_is_taken_from(
    settings: object, own_json: object, own_file: str | None, template: str | None, tmp_path: Path
) -> None:
    files: dict[str, object] = {"tokenizer_config": {"chat_template": settings}}
    if own_json is not None:
        files["chat_template"] = {"chat_template": own_json}
    if own_file is not None:
        (tmp_path / "chat_template.jinja").write_text(own_file)
    assert read(tmp_path, **files).chat_template == template


@pytest.mark.parametrize("name", ["tokenizer_config", "generation_config", "config"])
@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "cannot be read"), ("[1]", "is no JSON object"), ("[" * 100_000, "cannot be read")],
)
def test_a_damaged_file_is_named(name: str, content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read(tmp_path / "m", **{name: content})
    assert caught.value.message.startswith(f"m: {name}.json {words}")


def test_a_template_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", tokenizer={})
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"m: chat_template\.jinja cannot be read"):
        read_text_files(folder)
