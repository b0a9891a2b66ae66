"""The numbers of the part of each run that was measured beside the whole."""

from collections.abc import Callable
from typing import Any

from kvsim.report.numbers import NOTHING, count, number, percent, seconds


def window_rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the measurement windows, where any run has one."""
    windows = [run.get("window") or {"found": "none"} for run in runs]
    if all(window["found"] == "none" for window in windows):
        return []
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("From", lambda window: seconds(window["start_s"])),
        ("To", lambda window: seconds(window["end_s"])),
        ("Requests that came", lambda window: count(window["requests"])),
        ("Output tokens per second", lambda window: number(window["output_tokens_per_s"])),
        ("Sequences running, mean", lambda window: number(window["running_mean"])),
        ("Requests not yet started, mean", lambda window: number(window["waiting_mean"])),
        ("Time to first token, median", lambda window: seconds(window["ttft_s"]["p50"])),
        ("Time to first token, p99", lambda window: seconds(window["ttft_s"]["p99"])),
        ("Pool at work, mean", lambda window: percent(window["memory"]["time_mean"]["used"])),
    ]
    texts = [
        {
            "title": title,
            "texts": [NOTHING if window["found"] == "none" else text(window) for window in windows],
        }
        for title, text in rows
    ]
    if any(window["found"] == "none" for window in windows):
        reasons = [
            window.get("reason", "") if window["found"] == "none" else "" for window in windows
        ]
        texts.append({"title": "Why there is none", "texts": reasons})
    return texts


def window_title(runs: list[dict[str, Any]]) -> str:
    given = any((run.get("window") or {}).get("found") == "given" for run in runs)
    return "In the window that was given" if given else "While it was steady"
