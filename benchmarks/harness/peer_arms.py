"""The engines of a comparison: which run, how each is started, and why one is left out."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.arms import Arm, ServeCommand
from harness.client import NotReadyError
from harness.servers import ServerProcess, shown_command

SERVE_PEER = Path(__file__).parent.parent / "serve_peer.py"
CHECK_TIMEOUT_S = 120.0

OURS_PLAIN, OURS, OURS_AGAIN = (
    "surefoot plain",
    "surefoot prompt-lookup",
    "surefoot plain again",
)
OURS_ONNX_PLAIN, OURS_ONNX = "surefoot onnx plain", "surefoot onnx prompt-lookup"
LLAMA, LLAMA_PYTHON, ONNX_GENAI = "llama.cpp", "llama-cpp-python", "onnxruntime-genai"
OPENVINO, TRANSFORMERS = "openvino-genai", "transformers"
MLX = "mlx-lm"

PROGRAM_NAMES = {LLAMA: "xllamacpp"}
"""What serve_peer.py calls an engine, where that is not its name here."""

MODES: Mapping[str, Sequence[str]] = {
    LLAMA: ("plain", "ngram-simple", "ngram-mod"),
    LLAMA_PYTHON: ("plain", "prompt-lookup"),
    ONNX_GENAI: ("plain", "ngram", "adaptive"),
    OPENVINO: ("plain", "prompt-lookup"),
    TRANSFORMERS: ("plain", "prompt-lookup"),
}


def never_asked() -> dict[str, str]:
    """Engines that are named in the report without an adapter, and why."""
    here = f"{platform.system()} on {platform.machine()}"
    return {MLX: f"made for Apple's processors, and not asked by these scripts (this is {here})"}


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine with the model it is given (None: it needs one that was not named)."""

    engine: str
    model: Path | None
    python: str
    threads: int
    label: str = ""

    def arm_name(self, mode: str) -> str:
        return f"{self.engine}{self.label} {mode}"

    def command(self, *more: str) -> list[str]:
        name = PROGRAM_NAMES.get(self.engine, self.engine)
        return [self.python, str(SERVE_PEER), "--engine", name, *more]

    def serving(self, mode: str) -> list[str]:
        settings = ["--mode", mode, "--model", str(self.model), "--threads", str(self.threads)]
        return self.command(*settings, "--port", "{port}")

    def missing(self) -> str | None:
        """Why it cannot run here, or None. Asks its interpreter, which takes a moment."""
        if self.model is None:
            return "no model in its own form was named"
        if not self.model.exists():
            return f"{self.model.name} is not there"
        try:
            done = subprocess.run(
                self.command("--check"), capture_output=True, text=True, timeout=CHECK_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"its interpreter cannot be used ({type(error).__name__})"
        return last_line(done.stderr) if done.returncode else None


@dataclass(frozen=True, slots=True)
class Field:
    """Who takes part, and who does not and why."""

    arms: tuple[Arm, ...]
    skipped: Mapping[str, str]


@contextmanager
def peer_field(
    serve: ServeCommand, ours: Mapping[str, str], peers: Sequence[Peer], logs: Path
) -> Iterator[Field]:
    """Every server that can be started, ready; a peer that cannot is left out with a reason, our
    own servers must start. Raises `NotReadyError` for ours."""
    with ExitStack() as stack:
        arms: list[Arm] = []
        skipped: dict[str, str] = {}

        def start(name: str, command: Sequence[str]) -> None:
            log = logs / f"server-{name.replace(' ', '-')}.log"
            with ExitStack() as attempt:
                server = attempt.enter_context(ServerProcess(name, command, log))
                server.wait_ready()
                stack.push(attempt.pop_all())
            arms.append(Arm(name, server.endpoint, server.pid, shown_command(server.command)))

        for name, flags in ours.items():
            start(name, serve.with_flags(shlex.split(flags)))
        for peer in peers:
            reason = peer.missing()
            if reason is not None:
                skipped[f"{peer.engine}{peer.label}"] = reason
                continue
            for mode in MODES[peer.engine]:
                name = peer.arm_name(mode)
                try:
                    start(name, peer.serving(mode))
                except NotReadyError:
                    log = logs / f"server-{name.replace(' ', '-')}.log"
                    skipped[name] = last_line(log.read_text(encoding="utf-8", errors="replace"))
        yield Field(tuple(arms), skipped)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it ended without a word"


def own_plain(arm: str) -> str:
    """The plain arm of the same engine and model: the last word of a name is its mode."""
    return OURS_PLAIN if arm == OURS_AGAIN else f"{arm.rpartition(' ')[0]} plain"
