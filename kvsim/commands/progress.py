"""Progress on stderr: bars on a terminal, else a plain line now and then."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Moved = Callable[[str, int, int], None]
LINE_EVERY_S = 5.0


@contextmanager
def bar(words: str, *more: str) -> Iterator[Callable[[int, int], None]]:
    """One bar on a terminal's stderr, and a function to call with (how many are done, of how many).
    more: the names of further columns, of `rich.progress`.
    """
    from rich import progress as columns
    from rich.console import Console

    shown = [columns.BarColumn(), columns.MofNCompleteColumn()]
    shown += [getattr(columns, f"{name}Column")() for name in more]
    console = Console(stderr=True)
    with columns.Progress(words, *shown, console=console, transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def progress(labels: Sequence[str] = (), noun: str = "requests") -> Iterator[Moved]:
    """A function to call with (label, how many are done, how many in all). labels: those known
    before. noun: of what.
    """
    if not sys.stderr.isatty():
        yield Lines(LINE_EVERY_S, time.monotonic, noun).moved
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bars:
        tasks = {label: bars.add_task(label, total=None) for label in labels}

        def moved(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=None)
            bars.update(tasks[label], completed=done, total=total)

        yield moved


class TextLines:
    """Texts as plain lines, one each interval of a clock."""

    def __init__(self, every_s: float, clock: Callable[[], float]) -> None:
        self._every_s = every_s
        self._clock = clock
        self._began_s = self._shown_s = clock()

    def show(self, text: str) -> None:
        """Print it, if it is time."""
        now_s = self._clock()
        if now_s - self._shown_s >= self._every_s:
            self._shown_s = now_s
            print(f"{text}, {now_s - self._began_s:.0f} s", file=sys.stderr, flush=True)


class Lines:
    """Plain lines of progress, one each interval of a clock; a short run has none."""

    def __init__(self, every_s: float, clock: Callable[[], float], noun: str = "requests") -> None:
        self._every_s = every_s
        self._clock = clock
        self._noun = noun
        self._began_s = self._printed_s = clock()

    def moved(self, label: str, done: int, total: int) -> None:
        """Say it, if it is time."""
        now_s = self._clock()
        if now_s - self._printed_s < self._every_s:
            return
        self._printed_s = now_s
        share = 100 * done // max(total, 1)
        words = f"{label}: {done:,} of {total:,} {self._noun} ({share} %)"
        print(f"{words}, {now_s - self._began_s:.0f} s", file=sys.stderr, flush=True)
