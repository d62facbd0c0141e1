"""One ONNX Runtime session for a fixed number of rows, bound once for each set of windows.

Binding sixty cache tensors a row costs more than it should, so a binding is made for each tuple of
windows and for each of "logits wanted" and "not wanted", and the last few are kept. (There are
12,870 ways to choose eight of sixteen windows: keeping them all would take gigabytes.)
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from surefoot.engine.kv_memory import KvMemory
from surefoot.engine.session_options import session_options
from surefoot.graph import io_names

MAX_BINDINGS = 16
"""Bindings kept for one number of rows; one of eight rows holds a quarter of a megabyte."""


# Group-query attention has a flash kernel for long prompts. Over a KV of 1,024 tokens it took 171
# to 246 us a layer for one token where the plain kernel took 130 to 195, at 4,096 a fifth more for
# eight tokens, and at 256 the same (default model, two AVX2 cores, alternating runs; the prefill of
# 256 tokens is no faster with it). ONNX Runtime reads the variable when a session is made.
os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")


@dataclass(frozen=True, slots=True)
class Forward:
    """What one forward computed at the asked positions: arrays that the next run overwrites.

    `next_tokens` int64 `[A]`, `finite` bool `[A]`, `logits` float32 `[A, vocab]` or None.
    """

    next_tokens: NDArray[np.int64]
    finite: NDArray[np.bool_]
    logits: NDArray[np.float32] | None


@dataclass(slots=True)
class _Binding:
    io: ort.IOBinding
    outputs: dict[str, NDArray[np.generic]]
    num_asked: int = -1


class JointSession:
    """Runs the graph for `num_rows` rows over the given windows."""

    def __init__(
        self, path: Path, num_rows: int, num_threads: int, memory: KvMemory, num_layers: int
    ) -> None:
        self._session = ort.InferenceSession(
            str(path),
            session_options(num_threads),
            providers=["CPUExecutionProvider"],
            # Else a failure is told of on stdout, where replies go, and tried again.
            enable_fallback=0,
        )
        self._num_rows = num_rows
        self._num_layers = num_layers
        self._memory = memory
        self._bindings: OrderedDict[tuple[tuple[int, ...], bool], _Binding] = OrderedDict()
        self._buffers: dict[str, NDArray[np.generic]] = {}
        self.vocab_size = int(
            next(o for o in self._session.get_outputs() if o.name == io_names.LOGITS).shape[1]
        )

    def run(
        self,
        windows: tuple[int, ...],
        feeds: Sequence[Sequence[int]],
        starts: Sequence[int],
        asked: Sequence[int],
        with_logits: bool,
    ) -> Forward:
        """Feed `feeds[r]` to window `windows[r]` from position `starts[r]`; answer at `asked`
        (indices into all fed tokens, rows one behind the other; at least one)."""
        binding = self._binding(windows, with_logits)
        io = binding.io
        lengths = [len(feed) for feed in feeds]
        ids = [token for feed in feeds for token in feed]
        totals = [start + length for start, length in zip(starts, lengths, strict=True)]
        io.bind_cpu_input(io_names.INPUT_IDS, np.array(ids, dtype=np.int64))
        io.bind_cpu_input(io_names.ROW_LENGTHS, np.array(lengths, dtype=np.int64))
        io.bind_cpu_input(io_names.TOTAL_LENGTHS, np.array(totals, dtype=np.int32))
        io.bind_cpu_input(io_names.ASKED, np.array(asked, dtype=np.int64))
        self._bind_outputs(binding, len(asked), with_logits)
        self._session.run_with_iobinding(io)
        outputs = binding.outputs
        return Forward(
            next_tokens=outputs[io_names.NEXT_TOKENS].astype(np.int64, copy=False),
            finite=np.isfinite(outputs[io_names.ACTIVITY].astype(np.float32, copy=False)),
            logits=(
                outputs[io_names.LOGITS].astype(np.float32, copy=False) if with_logits else None
            ),
        )

    def _binding(self, windows: tuple[int, ...], with_logits: bool) -> _Binding:
        key = (windows, with_logits)
        if key not in self._bindings:
            io = self._session.io_binding()
            for row, window in enumerate(windows):
                values = self._memory.values(window)
                for layer in range(self._num_layers):
                    keys, vals = values[2 * layer : 2 * layer + 2]
                    io.bind_ortvalue_input(io_names.past_key(layer, row), keys)
                    io.bind_ortvalue_output(io_names.present_key(layer, row), keys)
                    io.bind_ortvalue_input(io_names.past_value(layer, row), vals)
                    io.bind_ortvalue_output(io_names.present_value(layer, row), vals)
            self._bindings[key] = _Binding(io, {})
            if len(self._bindings) > MAX_BINDINGS:
                self._bindings.popitem(last=False)
        self._bindings.move_to_end(key)
        return self._bindings[key]

    def _bind_outputs(self, binding: _Binding, num_asked: int, with_logits: bool) -> None:
        if binding.num_asked == num_asked:
            return
        items: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
            io_names.NEXT_TOKENS: ((), np.int64),
            io_names.ACTIVITY: ((), np.float32),
        }
        if with_logits:
            items[io_names.LOGITS] = ((self.vocab_size,), np.float32)
        for name, (shape, dtype) in items.items():
            array = self._buffer(name, num_asked, shape, dtype)
            binding.outputs[name] = array
            binding.io.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))
        binding.num_asked = num_asked

    def _buffer(
        self, name: str, count: int, shape: tuple[int, ...], dtype: type[np.generic]
    ) -> NDArray[np.generic]:
        """The first `count` items of the one buffer that all bindings write this output to."""
        if name not in self._buffers or len(self._buffers[name]) < count:
            self._buffers[name] = np.empty((count, *shape), dtype=dtype)
        return self._buffers[name][:count]
