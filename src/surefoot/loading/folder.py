"""Which model a folder holds, by its file names alone.

Imports nothing heavy: the command line asks before it loads anything.
"""

from __future__ import annotations

import re
from pathlib import Path

from surefoot.errors import ModelError

GGUF_SUFFIX = ".gguf"
MAX_NAME = 200
"""Characters of a file's name within a model; file systems take 255 bytes."""
WHOLE = "model.safetensors"
"""A Hugging Face model's weights in one file."""
INDEX = "model.safetensors.index.json"
"""Says which tensor is in which shard of a Hugging Face model."""
PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""A part of a split GGUF file, numbered from one."""


def part_name(stem: str, number: int, count: int) -> str:
    """The name of part `number` of `count`."""
    return f"{stem}-{number:05d}-of-{count:05d}{GGUF_SUFFIX}"


def model_in(folder: Path) -> Path:
    """The folder's only GGUF file, or the first part of its only split one; else the folder
    itself, if it is a Hugging Face, MLX or ONNX folder. Raises `ModelError` for other folders and
    where there is a choice to make."""
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(GGUF_SUFFIX))
    wholes = sorted({_stem(name) for name in names})
    if len(wholes) == 1:
        return folder / names[0]
    if wholes:
        raise ModelError(f"{folder} holds several model files; name one of {', '.join(names)}")
    if (folder / "config.json").is_file() or (folder / "genai_config.json").is_file():
        return folder
    raise ModelError(f"{folder} holds no {GGUF_SUFFIX} file and no config.json")


def _stem(name: str) -> str:
    match = PART_NAME.fullmatch(name)
    return match["stem"] if match else name


def is_plain_name(name: str) -> bool:
    """Whether a name that a file gives can be that of a file beside it, and of nothing else."""
    return (
        bool(name)
        and Path(name).name == name
        and name != ".."
        and name.isprintable()
        and len(name) <= MAX_NAME
    )
