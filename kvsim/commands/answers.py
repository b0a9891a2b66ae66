"""Helpers that the what-if commands share: run tasks, show progress on stderr, print the answer."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kvsim.commands.progress import Ticker

if TYPE_CHECKING:
    from kvsim.whatif.findings import Findings
    from kvsim.whatif.runner import TaskRunner, TurnOfRuns


@contextmanager
def status_line(first: str = "simulating") -> Iterator[Callable[[str], None]]:
    """Show a status text on stderr while the `with` block runs, beginning with `first`; yields the
    function that replaces the text.

    If stderr is no terminal, the current text is printed as a line every five seconds.
    """
    if not sys.stderr.isatty():
        with Ticker(first) as ticker:
            yield ticker.show
        return
    from rich.console import Console

    with Console(stderr=True).status(first) as status:
        yield status.update


@contextmanager
def requests_line(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show on stderr how many requests of a simulation have finished, beginning with the text
    `first`.

    Yields a function of (name of the simulation, requests that left, requests in all).
    """
    with status_line(first) as show:
        yield lambda what, left, total: show(f"{what}: {left:,} of {total:,} requests")


@contextmanager
def task_runner(jobs: int | None, name: str = "") -> Iterator["TaskRunner"]:
    """A TaskRunner over `jobs` processes that shows on stderr how many of its simulations are done.
    name: label at the start of each progress line, such as the server that is examined.
    """
    from kvsim.whatif.backends import BACKENDS
    from kvsim.whatif.runner import TaskRunner

    backend = BACKENDS.get("processes")(jobs=jobs)
    with status_line() as show:

        def told(turn: "TurnOfRuns") -> None:
            before = f", {turn.before:,} before" if turn.before else ""
            runs = f"turn {turn.number}, {turn.done:,} of {turn.total:,} runs{before}"
            show(f"{name}: {runs}" if name else runs)

        yield TaskRunner(backend, told)


def write(findings: "Findings", folder: Path, name: str) -> Path:
    """Write NAME.json, NAME.md and NAME.html into the folder, and return the path of NAME.html."""
    from kvsim.plumbing.writing import replace_files, text_writer
    from kvsim.whatif.findings import markdown_of, page_of

    data = json.dumps(findings.data, indent=2)
    texts = {"json": f"{data}\n", "md": markdown_of(findings), "html": page_of(findings)}
    replace_files(folder, {f"{name}.{form}": text_writer(text) for form, text in texts.items()})
    return folder / f"{name}.html"


def show(findings: "Findings", *, verbose: bool, draws: bool = True) -> None:
    """Print the answer in 24 lines, or with `verbose` all its tables, sentences and commands.
    draws: whether the command has an option --out for a page, which the short form then mentions.
    """
    from kvsim.commands.terminal_tables import out as stdout

    if verbose:
        from kvsim.whatif.findings import print_findings

        print_findings(findings, stdout())
    else:
        from kvsim.whatif.brief_findings import print_brief_findings

        print_brief_findings(findings, stdout(), draws=draws)


def answer(
    findings: "Findings",
    *,
    as_json: bool,
    out: Path | None = None,
    name: str = "",
    ensure_ascii: bool = True,
    verbose: bool = True,
    folder: Path | None = None,
) -> None:
    """Print the findings as JSON or as text.

    out: folder to write NAME.json, NAME.md and NAME.html into first; the path of the page is then
    printed too. verbose: print everything, instead of 24 lines. folder: the scenario's folder, if
    the answer contains simulated seconds: an error range is then added.
    """
    if folder is not None:
        from kvsim.whatif.seconds_range import with_interval

        findings = with_interval(findings, folder)
    page = None if out is None else write(findings, out, name)
    if as_json:
        typer.echo(json.dumps(findings.data, indent=2, ensure_ascii=ensure_ascii))
        return
    show(findings, verbose=verbose)
    if page is not None:
        typer.echo(str(page))
