"""The command line. Faults of the input are one line and exit 2; faults of kvsim exit 1."""

import sys
from collections.abc import Iterable
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim import COMPILED
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.extras import EXTRAS, missing
from kvsim.plumbing.process import lean
from kvsim.version import VERSION

if TYPE_CHECKING:
    app: typer.Typer

# A command's name, and the module of kvsim.commands that has it: as a function, or as an
# application, of the names that stand here. Only the one that is asked for is imported.
COMMANDS: dict[str, str] = {
    "run": "run:run",
    "memory": "memory:memory",
    "recipes": "recipes:recipes",
    "models": "models:models",
    "devices": "devices:devices",
    "options": "options:options",
    "schema": "schema:schema",
    "traces": "traces:app",
    "convert": "convert:convert",
    "snapshot": "snapshot:snapshot",
    "observe": "observe:observe",
    "export": "export:export",
    "import": "import_:import_",
    "report": "report:report",
    "compare": "compare:compare",
    "attribute": "attribute:attribute",
    "speculation": "speculation:speculation",
    "sweep": "sweep:sweep",
    "capacity": "capacity:capacity",
    "advise": "advise:advise",
    "doctor": "doctor:doctor",
    "cache": "cache:cache",
    "explore": "explore:explore",
    "validate": "validate:app",
    "calibrate": "calibrate:app",
}


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    made = typer.Typer(
        help="What is my KV memory doing, and what would another allocator do?",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
    )
    made.callback()(root)
    for name in names:
        module, attribute = COMMANDS[name].split(":")
        command = getattr(import_module(f"kvsim.commands.{module}"), attribute)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name)(command)
    return made


def __getattr__(name: str) -> Any:
    """`app`, with all commands, made on first import."""
    if name != "app":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    globals()[name] = make_app()
    return globals()[name]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvsim {VERSION}{', compiled' if COMPILED else ''}")
        raise typer.Exit


def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """A discrete-event simulator of GPU KV-cache memory for LLM serving."""


def _check_arguments(arguments: list[str]) -> None:
    """An empty one is a variable that nobody set: as a path it would mean the folder at hand."""
    for before, argument in pairwise(["kvsim", *arguments]):
        if not argument.strip():
            raise InputError("an argument is empty", where=f"after {before}")
        if argument.startswith("--") and argument.endswith("=") and argument.count("=") == 1:
            raise InputError("an argument is empty", where=argument)


def main() -> None:
    """Run the command line. Exit code 2: the input is wrong; 1: a fault of kvsim."""
    lean()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_arguments(sys.argv[1:])
        first = sys.argv[1] if len(sys.argv) > 1 else ""
        make_app([first] if first in COMMANDS else COMMANDS)()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        print(f"error: {missing(library)}", file=sys.stderr)
        sys.exit(2)
    except MemoryError:
        print("error: out of memory; ask for fewer requests or shorter ones", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"error: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except InvariantError as error:
        print(f"fault of kvsim, please report it: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
