"""The command line: the one place that reads the environment and wires the parts together."""

from surefoot.cli.program import main

__all__ = ["main"]
