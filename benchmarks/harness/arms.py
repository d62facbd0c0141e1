"""The servers under comparison, started here or running already, each under an arm's name."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.client import Endpoint, HttpError
from harness.machine import peak_memory_mib
from harness.servers import ServerProcess, shown_command, without_folders

OFF, ON, UNPRICED, OFF_AGAIN = "off", "on", "unpriced", "off again"


@dataclass(frozen=True, slots=True)
class Arm:
    """`pid` and `command` are None for a server that somebody else started. `fields` go into every
    body that it is asked."""

    name: str
    endpoint: Endpoint
    pid: int | None = None
    command: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        """What the report says of the server; its settings as far as it tells them."""
        try:
            props = without_folders(self.endpoint.get("/props"))
        except (HttpError, OSError, ValueError):
            props = None
        command = self.command or "(running already)"
        if self.fields:
            command += f" asked with {json.dumps(self.fields)}"
        return {"arm": self.name, "command": command, "props": props}

    def peak_memory_mib(self) -> float | None:
        return None if self.pid is None else peak_memory_mib(self.pid)


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """How `surefoot serve` is started; `common` are flags that every arm gets."""

    program: Sequence[str]
    common: Sequence[str]

    def with_flags(self, flags: Sequence[str]) -> list[str]:
        return [*self.program, "serve", "--port", "{port}", *self.common, *flags]


def told_to_be_off(arm: Arm) -> Arm:
    """The off arm as the same process: what two processes of one build differ by drops out."""
    return replace(arm, name=OFF, fields={"speculation": False})


DEFAULT_PROGRAM = f"{shlex.quote(sys.executable)} -m surefoot"


@contextmanager
def running_arms(
    command: ServeCommand, flags: Mapping[str, str], urls: Mapping[str, str], logs: Path
) -> Iterator[list[Arm]]:
    """All arms, ready to answer. A name in `urls` is a running server, the others are started
    with their `flags` (as a shell would split them), one after the other.

    Raises `NotReadyError`.
    """
    with ExitStack() as stack:
        arms = []
        for name, text in flags.items():
            if name in urls:
                endpoint = Endpoint(urls[name])
                endpoint.wait_ready(10.0, lambda: True)
                arms.append(Arm(name, endpoint))
                continue
            log = logs / f"server-{name.replace(' ', '-')}.log"
            full = command.with_flags(shlex.split(text))
            server = stack.enter_context(ServerProcess(name, full, log))
            server.wait_ready()
            arms.append(Arm(name, server.endpoint, server.pid, shown_command(server.command)))
        yield arms
