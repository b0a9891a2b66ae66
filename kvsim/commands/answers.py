"""The steps that the what-if commands share: a runner of tasks, and the printed answer."""

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
    """A function that shows a text on stderr while something runs, `first` before the first call.

    If stderr is no terminal, it prints a line every five seconds.
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
    """The same with a function of what is simulated, how many requests have left, and all."""
    with status_line(first) as show:
        yield lambda what, left, total: show(f"{what}: {left:,} of {total:,} requests")


@contextmanager
def task_runner(jobs: int | None, name: str = "") -> Iterator["TaskRunner"]:
    """A runner of tasks in `jobs` processes, that says on stderr how many of its runs are done.
    name: of what they are of.
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
    """Write NAME.json, NAME.md and NAME.html into the folder; returns the path of the page."""
    from kvsim.plumbing.writing import replace_files, text_writer
    from kvsim.whatif.findings import markdown_of, page_of

    data = json.dumps(findings.data, indent=2)
    texts = {"json": f"{data}\n", "md": markdown_of(findings), "html": page_of(findings)}
    replace_files(folder, {f"{name}.{form}": text_writer(text) for form, text in texts.items()})
    return folder / f"{name}.html"


def show(findings: "Findings", *, verbose: bool, draws: bool = True) -> None:
    """Print the answer in 24 lines, or all its tables, sentences and commands. draws: whether the
    command takes --out.
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
    """Print the findings, as JSON or as text. out: a folder where they are written first, as NAME
    with its endings; the page's path is then printed too. verbose: everything, not 24 lines.
    folder: of a scenario with seconds, which then get their interval.
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
