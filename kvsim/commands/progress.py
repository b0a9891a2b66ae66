"""Progress on stderr: bars on a terminal, else a plain line every five seconds."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

Moved = Callable[[str, int, int], None]
LINE_EVERY_S = 5.0


class Ticker:
    """Prints `text` and the elapsed time as a line on stderr every `every_s` seconds. It runs while
    the `with` block does; a block that ends sooner prints nothing.

    A background thread prints, so lines appear even during one long step.
    """

    def __init__(self, text: str, every_s: float | None = None) -> None:
        self.text = text
        self._every_s = LINE_EVERY_S if every_s is None else every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def show(self, text: str) -> None:
        """Replace the text that the next lines print."""
        self.text = text

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._over.wait(self._every_s):
            passed_s = time.monotonic() - began_s
            try:
                print(f"{self.text}, {passed_s:.0f} s", file=sys.stderr, flush=True)
            except (OSError, ValueError):  # nobody reads any more
                return


@contextmanager
def bar(words: str, *more: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr; yields a function to call with (number done, total).

    words: label of the bar. more: further columns of `rich.progress` by name, such as
    `TimeElapsed`.
    """
    if not sys.stderr.isatty():
        with Ticker(words) as ticker:
            yield lambda done, total: ticker.show(f"{words}: {done:,} of {total:,}")
        return
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
    """Show a progress bar per label on stderr; yields a function to call with (label, number done,
    total).

    labels: labels known in advance, which run one after the other. noun: what is counted.
    """
    if not sys.stderr.isatty():
        nothing = f"no {noun} yet"
        with Ticker(_line(labels[0], labels, nothing) if labels else nothing) as ticker:

            def told(label: str, done: int, total: int) -> None:
                share = 100 * done // max(total, 1)
                count = f"{done:,} of {total:,} {noun} ({share} %)"
                if done >= total and label in labels[:-1]:  # the next one begins
                    label, count = labels[labels.index(label) + 1], nothing
                ticker.show(_line(label, labels, count))

            yield told
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


def _line(label: str, labels: Sequence[str], count: str) -> str:
    """A progress line: `paged (2 of 3): 512 of 1,000 requests (51 %)`; a single label has no (2 of
    3).
    """
    if len(labels) < 2 or label not in labels:
        return f"{label}: {count}"
    return f"{label} ({labels.index(label) + 1} of {len(labels)}): {count}"
