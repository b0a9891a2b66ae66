"""The command line. Faults of the input are one line and exit 2; faults of kvsim exit 1."""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from kvsim import COMPILED
from kvsim.commands import (
    advise,
    attribute,
    cache,
    calibrate,
    capacity,
    compare,
    convert,
    devices,
    doctor,
    explore,
    export,
    import_,
    memory,
    models,
    observe,
    options,
    recipes,
    report,
    run,
    snapshot,
    speculation,
    sweep,
    traces,
    validate,
)
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.process import lean
from kvsim.version import VERSION

app = typer.Typer(
    help="What is my KV memory doing, and what would another allocator do?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)

app.command("run")(run.run)
app.command("memory")(memory.memory)
app.command("recipes")(recipes.recipes)
app.command("models")(models.models)
app.command("devices")(devices.devices)
app.command("options")(options.options)
app.add_typer(traces.app, name="traces")
app.command("convert")(convert.convert)
app.command("snapshot")(snapshot.snapshot)
app.command("observe")(observe.observe)
app.command("export")(export.export)
app.command("import")(import_.import_)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("attribute")(attribute.attribute)
app.command("speculation")(speculation.speculation)
app.command("sweep")(sweep.sweep)
app.command("capacity")(capacity.capacity)
app.command("advise")(advise.advise)
app.command("doctor")(doctor.doctor)
app.command("cache")(cache.cache)
app.command("explore")(explore.explore)
app.add_typer(validate.app, name="validate")
app.add_typer(calibrate.app, name="calibrate")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvsim {VERSION}{', compiled' if COMPILED else ''}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """A discrete-event simulator of GPU KV-cache memory for LLM serving."""


def main() -> None:
    """Run the command line; the exit code says whose fault a fault was."""
    lean()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
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
