"""The `surefoot` program: its commands, and what becomes of their errors.

A command that fails prints one line on stderr and exits with 1; a wrong command line exits with
2; a Ctrl-C with 130. Commands import what they need when they run, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer
from typer.exceptions import TyperException

from surefoot import __version__
from surefoot.app.console import fail
from surefoot.app.environment import debugging
from surefoot.cli.calibrate import calibrate
from surefoot.cli.chat import chat
from surefoot.cli.generate import generate
from surefoot.cli.inspect import inspect
from surefoot.cli.models import list_models, pull, rm
from surefoot.cli.replay import replay
from surefoot.cli.serve import serve
from surefoot.errors import SurefootError

app = typer.Typer(
    name="surefoot",
    help="Serve a language model on this machine, for OpenAI clients and for the terminal.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(generate)
app.command()(chat)
app.command()(inspect)
app.command()(calibrate)
app.command()(replay)
app.command()(pull)
app.command("list")(list_models)
app.command()(rm)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"surefoot {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the program on `sys.argv` and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code."""
    try:
        return app(arguments, prog_name="surefoot", standalone_mode=False) or 0
    except TyperException as error:
        fail(error.format_message())
        return error.exit_code
    except SurefootError as error:
        fail(error.message)
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not try to flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        if debugging():
            traceback.print_exc()
        hint = "SUREFOOT_DEBUG=1 shows where"
        fail(f"internal error: {type(error).__name__}: {error} ({hint})")
    return 1
