"""The folder of one run: raw measurements, what they were taken on, and the report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any


class RunFolder:
    """A new folder `root/name-DATE-TIME`; an existing one is never touched."""

    def __init__(self, root: Path, name: str) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            suffix = f"-{attempt}" if attempt else ""
            self.path = root / f"{name}-{stamp}{suffix}"
            try:
                self.path.mkdir(parents=True)
                return
            except FileExistsError:
                continue
        raise FileExistsError(f"no free folder name like {self.path}")

    def append(self, record: Mapping[str, Any]) -> None:
        """One line of `raw.jsonl`, written at once, so that a run cut short keeps what it had."""
        with (self.path / "raw.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, default=plain, ensure_ascii=False) + "\n")

    def write_meta(self, meta: Mapping[str, Any]) -> None:
        text = json.dumps(meta, default=plain, ensure_ascii=False, indent=1)
        (self.path / "meta.json").write_text(text + "\n", encoding="utf-8")

    def write_report(self, text: str) -> Path:
        report = self.path / "report.md"
        report.write_text(text, encoding="utf-8")
        return report


def plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
