"""The command line. Faults of the input are one line and exit 2; faults of kvsim exit 1."""

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kvsim import COMPILED
from kvsim.commands.example import example
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.extras import EXTRAS, missing
from kvsim.plumbing.process import lean
from kvsim.plumbing.terminal import guard_streams
from kvsim.version import VERSION

if TYPE_CHECKING:
    app: typer.Typer


# The base of all errors of usage, which typer exports under no name.
_UsageError: Any = typer.BadParameter.__mro__[2]


class Command(NamedTuple):
    """A command of `kvsim` with its place in kvsim.commands.

    place: the module of kvsim.commands and the function, or the group of commands, in it; the
    module is imported when the command is asked for. example: a line that `--help` shows.
    """

    place: str
    example: str


# The groups of `kvsim --help`, in order.
GROUPS: dict[str, dict[str, Command]] = {
    "Simulate": {
        "run": Command("run:run", "kvsim run chat --out out/chat"),
        "compare": Command("compare:compare", "kvsim compare out/before out/after"),
        "report": Command("report:report", "kvsim report out/chat --format md,csv"),
        "explore": Command("explore:explore", "kvsim explore chat --open"),
    },
    "Size a pool": {
        "memory": Command("memory:memory", "kvsim memory llama-3.1-8b --device h100"),
        "models": Command("models:models", "kvsim models qwen3"),
        "devices": Command("devices:devices", "kvsim devices h100"),
    },
    "My server": {
        "import": Command(
            "import_:import_", "kvsim import server.log --device h100 --out mine.toml"
        ),
        "record": Command(
            "record:record",
            "kvsim record http://localhost:8000 --users 16 --device h100 --out mine",
        ),
        "doctor": Command("doctor:doctor", "kvsim doctor mine.toml"),
        "advise": Command("advise:advise", "kvsim advise mine.toml --out out/advice"),
        "export": Command("export:export", "kvsim export chat --to perfetto --out chat.json"),
        "snapshot": Command("snapshot:snapshot", "kvsim snapshot snapshot.pickle"),
    },
    "What if": {
        "sweep": Command(
            "sweep:sweep",
            "kvsim sweep chat --vary allocator.paged.block_size=8,16,32 --out out/sweep",
        ),
        "capacity": Command("capacity:capacity", "kvsim capacity chat --slo ttft_s.p99=2"),
        "measure": Command("measure:measure", "kvsim measure chat --by ttft_p99"),
        "cache": Command("cache:cache", "kvsim cache agents --at 64K --at 1M"),
        "attribute": Command("attribute:attribute", "kvsim attribute chat"),
        "speculation": Command("speculation:speculation", "kvsim speculation drafts.toml"),
    },
    "Check": {
        "validate": Command("validate:app", "kvsim validate schedule case.json"),
        "calibrate": Command("calibrate:app", "kvsim calibrate fit steps.csv --out mine.json"),
        "observe": Command(
            "observe:observe",
            "kvsim observe chat --model small-llama --allocator paged --limit 5 --out out/observed",
        ),
    },
    "Data": {
        "recipes": Command("recipes:recipes", "kvsim recipes chat > mine.toml"),
        "options": Command("options:options", "kvsim options scheduler"),
        "schema": Command("schema:schema", "kvsim schema > kvsim.schema.json"),
        "traces": Command("traces:app", "kvsim traces describe azure-conv-2023"),
        "convert": Command("convert:convert", "kvsim convert azure-conv-2023 mine.csv --to kvsim"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The typer application with the commands of these names."""
    made = typer.Typer(
        help="What is my KV memory doing, and what would another allocator do?",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
        rich_markup_mode="markdown",
        epilog=example("kvsim run chat --out out/chat"),
    )
    made.callback()(root)
    groups = {name: group for group, commands in GROUPS.items() for name in commands}
    for name in names:
        place, line = COMMANDS[name]
        module, attribute = place.split(":")
        command = getattr(import_module(f"kvsim.commands.{module}"), attribute)
        group, epilog = groups[name], example(line)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name, rich_help_panel=group, epilog=epilog)
        else:
            kind = getattr(command, "command_class", None)  # with a help of its own
            made.command(name, cls=kind, rich_help_panel=group, epilog=epilog)(command)
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
    """Raise InputError for an empty argument: an unset shell variable, which as a path would mean
    the current folder.
    """
    for before, argument in pairwise(["kvsim", *arguments]):
        if not argument.strip():
            raise InputError("an argument is empty", where=f"after {before}")
        if argument.startswith("--") and argument.endswith("=") and argument.count("=") == 1:
            raise InputError("an argument is empty", where=argument)


def _refuse(error: Any) -> None:
    """Print a usage error in one line, like all other errors, and exit with its code (2). Its
    message is empty where typer printed the help because there were no arguments.
    """
    said = " ".join(error.format_message().split()).rstrip(".")
    if said:
        command = error.ctx.command_path if getattr(error, "ctx", None) else "kvsim"
        said = _in_our_words(said[0].lower() + said[1:], sys.argv[1:])
        end = "" if said.endswith("?") else ";"
        print(f"error: {said}{end} see {command} --help", file=sys.stderr)
    sys.exit(error.exit_code)


# What pydantic says of a value, and the same as all other errors say it.
_SAID_OF_VALUES = {
    r"Input should be greater than or equal to (\S+)": r"too small{}; limit \1 or more",
    r"Input should be less than or equal to (\S+)": r"too large{}; limit \1 or less",
    r"Input should be a valid integer.*": "not a whole number{}",
    r"Input should be a valid number.*": "not a number{}",
    r"Value error, (.*)": r"\1",
}


def _in_our_words(said: str, arguments: list[str]) -> str:
    """Typer's message about a wrong value in kvsim's form: `--repeat: too small; got 2; limit 3 or
    more`.
    """
    found = re.fullmatch(r"invalid value for '(-[^']+)': (.*)", said)
    if found is None:
        return said
    flag, words = found.groups()
    values = [after for before, after in pairwise(arguments) if before == flag]
    values += [each.partition("=")[2] for each in arguments if each.startswith(f"{flag}=")]
    got = f"; got {values[-1]}".replace("\\", r"\\") if values else ""
    for theirs, ours in _SAID_OF_VALUES.items():
        words = re.sub(theirs, ours.replace("{}", got), words)
    return f"{flag}: {words}"


def main() -> None:
    """Run the command line. Exit code 2: the input is wrong; 1: a fault of kvsim."""
    lean()
    guard_streams()
    try:
        _check_arguments(sys.argv[1:])
        first = sys.argv[1] if len(sys.argv) > 1 else ""
        code = make_app([first] if first in COMMANDS else COMMANDS)(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)  # what typer.Exit was raised with
    except _UsageError as error:
        _refuse(error)
    except typer.Abort:
        print("aborted", file=sys.stderr)
        sys.exit(1)
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
