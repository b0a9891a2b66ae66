"""Tables of each run's measurement window, next to the numbers of the whole run."""

from collections.abc import Callable, Sequence
from typing import Any

from kvsim.report.numbers import NOTHING, count, number, percent, seconds
from kvsim.results.summary import NoWindow, RunSummary, WindowSummary

_ROWS: tuple[tuple[str, Callable[[WindowSummary], str]], ...] = (
    ("From", lambda window: seconds(window.start_s)),
    ("To", lambda window: seconds(window.end_s)),
    ("Requests that came", lambda window: count(window.requests)),
    ("Output tokens per second", lambda window: number(window.output_tokens_per_s)),
    ("Sequences running, mean", lambda window: number(window.running_mean)),
    ("Requests not yet started, mean", lambda window: number(window.waiting_mean)),
    ("Time to first token, median", lambda window: seconds(window.ttft_s.p50)),
    ("Time to first token, p99", lambda window: seconds(window.ttft_s.p99)),
    ("Pool at work, mean", lambda window: percent(window.memory.time_mean.used)),
)


def window_rows(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Rows of the measurement windows if any run has one: a title, and a text per run."""
    windows = [run.window for run in runs]
    measured = [isinstance(window, WindowSummary) for window in windows]
    if not any(measured):
        return []
    rows: list[dict[str, Any]] = [
        {
            "title": title,
            "texts": [
                text(each) if isinstance(each, WindowSummary) else NOTHING for each in windows
            ],
        }
        for title, text in _ROWS
    ]
    if not all(measured):
        reasons = [each.reason if isinstance(each, NoWindow) else "" for each in windows]
        rows.append({"title": "Why there is none", "texts": reasons})
    return rows


def window_title(runs: Sequence[RunSummary]) -> str:
    """The heading of the table of measurement windows."""
    given = any(run.window is not None and run.window.found == "given" for run in runs)
    return "In the window that was given" if given else "While it was steady"
