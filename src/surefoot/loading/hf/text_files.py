"""What a Hugging Face folder says about text: vocabulary file, begin and end tokens, template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from surefoot.errors import ModelError
from surefoot.loading.hf.config import read_json
from surefoot.loading.model import TextFiles


def read_text_files(folder: Path) -> TextFiles | None:
    """None without a `tokenizer.json`. Raises `ModelError` for a file that cannot be read."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    settings = _optional_json(folder / "tokenizer_config.json")
    add_bos = settings.get("add_bos_token")
    ends = [
        read.get("eos_token_id")
        for read in (
            _optional_json(folder / "generation_config.json"),
            _optional_json(folder / "config.json"),
        )
    ]
    return TextFiles(
        tokenizer_json=path,
        bos_text=_token_text(settings, "bos_token"),
        eos_text=_token_text(settings, "eos_token"),
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        end_ids=tuple(sorted({token_id for entry in ends for token_id in _ids(entry)})),
        chat_template=_template(folder, settings),
    )


def _optional_json(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _ids(entry: object) -> Iterable[int]:
    """One id, several, or none."""
    entries = entry if isinstance(entry, list) else [entry]
    return [value for value in entries if isinstance(value, int) and not isinstance(value, bool)]


def _token_text(settings: Mapping[str, Any], key: str) -> str | None:
    token = settings.get(key)
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The file of its own, else the tokenizer's settings; of several, the one named default."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{folder.name}: {path.name} cannot be read: {error}") from error
    source = settings.get("chat_template")
    if isinstance(source, list):
        entries = [entry for entry in source if isinstance(entry, Mapping)]
        named = {entry.get("name"): entry.get("template") for entry in entries}
        source = named.get("default")
    if source is None and (folder / "chat_template.json").is_file():
        source = read_json(folder / "chat_template.json").get("chat_template")
    return source if isinstance(source, str) else None
