"""The model on disk as ONNX Runtime wants it: weights packed once, mapped ever after.

The first open converts the weights, lets ONNX Runtime pack them for this CPU and saves the result;
later opens map that file (0.2 s instead of 2 s for the default model), and so do the sessions for
other numbers of rows, which share its pages. The packing is specific to the CPU and to the ONNX
Runtime version: both are in the key, and a file that does not load is built anew. A graph that is
open here is held, so that no other program removes it (`graph_cache`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import re
import tempfile
from dataclasses import asdict
from pathlib import Path

import onnxruntime as ort

from surefoot.engine.cached_files import FileMark, digest, digest_of, write_atomically
from surefoot.engine.graph_cache import (
    BUILDING,
    Hold,
    hold,
    remove_unless_held,
    sweep,
    writable,
)
from surefoot.errors import EngineError, SurefootError
from surefoot.graph.layouts import BUILDER_VERSION, LinearLayout
from surefoot.graph.spec import ModelSpec, WeightSource

logger = logging.getLogger(__name__)

PACKED = "packed.onnx"
WEIGHTS = "packed.bin"
LAYOUTS = "layouts.json"
EXTERNAL_FROM_BYTES = 1024
"""Initializers from this size on live outside the graph file, which keeps it far below protobuf's
2 GB and lets their pages be shared."""
CACHE_FORMAT = 3
"""Part of the key: raise it when files of a cached graph are laid out anew. The second has notes of
what made it, the third digests."""
OPEN_TRIES = 5
"""Another program may remove a graph between its making and its opening; not so often in a row."""


class PackedGraph:
    """One model's cached graphs: `rows_path(n)` is a loadable graph for n rows. Nobody removes them
    before `close`."""

    def __init__(self, directory: Path, held: Hold, spec: ModelSpec, accuracy_level: int) -> None:
        self.directory = directory
        self._held = held
        self._spec = spec
        self._accuracy_level = accuracy_level

    def close(self) -> None:
        self._held.release()

    def rows_path(self, num_rows: int) -> Path:
        """The graph file for `num_rows` rows, derived from the packed one when first asked for. Its
        name holds its digest."""
        for path in self._rows_files(num_rows):
            if digest_of(path) == path.name.split(".")[1]:
                return path
            logger.warning(
                "the graph for %d rows does not load as it was written: building it anew", num_rows
            )
            path.unlink()
        from surefoot.engine.graph_building import derive_rows

        layouts = _read_layouts(self.directory / LAYOUTS)
        packed, level = self.directory / PACKED, self._accuracy_level
        content = derive_rows(packed, layouts, self._spec, num_rows, level)
        path = self.directory / f"rows-{num_rows}.{digest(content)}.onnx"
        write_atomically(path, content)
        return path

    def forget_rows(self, num_rows: int) -> None:
        """The derived file does not load: it is derived anew when asked for again."""
        for path in self._rows_files(num_rows):
            path.unlink(missing_ok=True)

    def _rows_files(self, num_rows: int) -> list[Path]:
        return sorted(self.directory.glob(f"rows-{num_rows}.*.onnx"))


def open_packed(
    cache_root: Path,
    fingerprint: str,
    spec: ModelSpec,
    source: WeightSource,
    accuracy_level: int,
    num_threads: int,
    external_from_bytes: int = EXTERNAL_FROM_BYTES,
) -> PackedGraph:
    """The cached packed graph of this model on this machine; built first if it is not there, or
    if its files are not what was written. A build sweeps leftovers away; where the cache cannot be
    written it goes into a temporary folder. Raises `EngineError`, one line, where it cannot be
    made."""
    key = cache_key(fingerprint, accuracy_level)
    for _ in range(OPEN_TRIES):
        directory = cache_root / key
        held = _hold_whole(directory)
        if held is not None:
            return PackedGraph(directory, held, spec, accuracy_level)
        cache_root = writable(cache_root)
        directory = cache_root / key
        sweep(cache_root, _is_outdated)
        with tempfile.TemporaryDirectory(
            dir=cache_root, prefix=BUILDING, ignore_cleanup_errors=True
        ) as scratch:
            try:
                holding = hold(Path(scratch))
            except FileNotFoundError:  # swept away before it was held
                continue
            with holding:
                build = Path(scratch) / "graph"
                build.mkdir()
                _build(build, spec, source, accuracy_level, num_threads, external_from_bytes)
                _publish(build, directory)
    raise EngineError("the packed graph is removed again and again while it is being opened")


def _hold_whole(directory: Path) -> Hold | None:
    """None when the graph is not there; a damaged one is removed. Raises `EngineError` if another
    program runs from that."""
    if directory.is_symlink() or directory.is_file():
        directory.unlink()
    try:
        held = hold(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if _is_whole(directory):
        return held
    held.release()
    logger.warning("the cached graph is damaged: building it anew")
    _remove(directory)
    return None


def discard_packed(cache_root: Path, fingerprint: str, accuracy_level: int) -> None:
    """Forget a cached graph that turned out not to load. Raises `EngineError` if another program
    runs from it."""
    _remove(cache_root / cache_key(fingerprint, accuracy_level))


def _remove(directory: Path) -> None:
    if not remove_unless_held(directory):
        raise EngineError(
            "the cached graph is damaged, and another program still runs from it (or it may not be "
            "removed): end that one, or run `surefoot rm --graphs`"
        )


def cache_key(fingerprint: str, accuracy_level: int) -> str:
    """A directory name that changes with the model, the builder, ONNX Runtime and the CPU."""
    parts = (
        fingerprint,
        str(BUILDER_VERSION),
        ort.__version__,
        str(accuracy_level),
        _cpu(),
        str(CACHE_FORMAT),
    )
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    seen = {line.partition(":")[0].strip(): line for line in reversed(lines)}
    return "\n".join(seen[key] for key in wanted if key in seen)


def _build(
    directory: Path,
    spec: ModelSpec,
    source: WeightSource,
    accuracy_level: int,
    num_threads: int,
    external_from_bytes: int,
) -> None:
    """The packed graph, and notes of what made it, what derives others from it, and how to know
    that it is whole."""
    from surefoot.engine.graph_building import write_packed

    try:
        layouts = write_packed(
            directory / PACKED,
            WEIGHTS,
            spec,
            source,
            accuracy_level,
            num_threads,
            external_from_bytes,
        )
        content = {
            "made_by": _made_by(),
            "layouts": {name: asdict(layout) for name, layout in layouts.items()},
            "marks": {name: asdict(FileMark.of(directory / name)) for name in (PACKED, WEIGHTS)},
        }
        (directory / LAYOUTS).write_text(json.dumps(content))
    except (SurefootError, MemoryError):
        raise
    # ONNX Runtime's own errors have no common class; a full disk is among what they say.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(f"the packed graph cannot be made in the cache: {reason}") from error


def _read_layouts(path: Path) -> dict[str, LinearLayout]:
    layouts = json.loads(path.read_text())["layouts"]
    return {name: LinearLayout(**fields) for name, fields in layouts.items()}


def _made_by() -> list[list[int]]:
    """What grows from one version to the next: our formats and ONNX Runtime's release."""
    release = re.match(r"[\d.]*\d", ort.__version__)
    numbers = release[0].split(".") if release else []
    return [[CACHE_FORMAT, BUILDER_VERSION], [int(number) for number in numbers]]


def _is_outdated(directory: Path) -> bool:
    """Made by versions that came before these, which no program with these can use. Those of later
    versions stay, and whatever is no cached graph."""
    if not re.fullmatch(r"[0-9a-f]{32}", directory.name):
        return False
    now = _made_by()
    try:
        then = json.loads((directory / LAYOUTS).read_text())["made_by"]
        return bool(then[0] <= now[0] and then[1] <= now[1] and then != now)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return True


def _is_whole(directory: Path) -> bool:
    try:
        _read_layouts(directory / LAYOUTS)
        marks = json.loads((directory / LAYOUTS).read_text())["marks"]
        return all(FileMark(**marks[name]).fits(directory / name) for name in (PACKED, WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _publish(build: Path, directory: Path) -> None:
    """Move a finished build into place; whoever was first wins, the results are alike."""
    try:
        build.rename(directory)
    except OSError:
        if not _is_whole(directory):
            _remove(directory)
            build.rename(directory)
