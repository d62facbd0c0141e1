"""Run a command that needs a service, where the service can be reached; say so where it cannot.

    python if_reachable.py [--require] URL COMMAND [ARGUMENT ...]

Ends with the command's own exit code. Where no service answers at URL it says that the command was
not run and ends with 0, or with 3 after `--require`.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request

TIMEOUT_S = 10.0
NOT_RUN = 3


def reachable(url: str) -> bool:
    """The service answers there, and well: a proxy that only says 404 is not the service."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):
            return True
    except OSError:
        return False


def main(arguments: list[str]) -> int:
    required = arguments[:1] == ["--require"]
    url, *command = arguments[required:]
    if reachable(url):
        return subprocess.run(command, check=False).returncode
    print(f"NOT RUN: {url} cannot be reached from here: {' '.join(command)}", file=sys.stderr)
    return NOT_RUN if required else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
