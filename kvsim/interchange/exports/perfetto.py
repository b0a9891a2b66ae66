"""Export a run as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: requests as slices
on tracks, the ledger and the queue as counters.

Requests that do not overlap share a track, so there are as many tracks as concurrent requests.
Times are whole microseconds, so that slices nest exactly: Perfetto drops slices that overlap.
"""

import heapq
import json
from collections.abc import Iterator
from typing import Any, ClassVar

from kvsim.interchange.exports.export import Answered, Export, Exported, answered
from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.units import PS_PER_US
from kvsim.results.result import Run

_REQUESTS, _ENGINE = 1, 2
_PHASES = ("waiting", "prefill", "decode")
US_PER_S = 10**6


class Perfetto(Export):
    """Trace events as JSON, in whole microseconds from the start."""

    what: ClassVar[str] = "a trace for ui.perfetto.dev"

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        yield "trace.json", _text(exported)


def _text(exported: Exported) -> Iterator[str]:
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    separator = ""
    for event in _events(exported):
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    yield "\n]}\n"


def _events(exported: Exported) -> Iterator[dict[str, Any]]:
    done = answered(exported.run)
    lanes = _lanes(done)
    yield _name("process_name", _REQUESTS, 0, f"requests: {exported.run.label}")
    yield _name("process_name", _ENGINE, 0, "engine")
    for lane in range(1, max(lanes, default=0) + 1):
        yield _name("thread_name", _REQUESTS, lane, f"lane {lane}")
    for at, lane in enumerate(lanes):
        yield from _slices(done, at, lane)
    yield from _counters(exported.run)


def _name(kind: str, process: int, thread: int, words: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": words}}


def _lanes(done: Answered) -> list[int]:
    """For each request the number (from 1) of the lowest track that is free when it arrives."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    lanes = []
    for arrival, finish in zip(done.arrival_s.tolist(), done.finish_s.tolist(), strict=True):
        while taken and taken[0][0] <= arrival:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else len(taken) + 1
        heapq.heappush(taken, (finish, lane))
        lanes.append(lane)
    return lanes


def _slices(done: Answered, at: int, lane: int) -> Iterator[dict[str, Any]]:
    """The slices of request `at` on track `lane`: one for its whole time, and one for
    each phase.
    """
    edges = [
        int(US_PER_S * float(column[at]))
        for column in (done.arrival_s, done.scheduled_s, done.first_token_s, done.finish_s)
    ]
    args = {
        "prompt_tokens": int(done.prompt_tokens[at]),
        "output_tokens": int(done.output_tokens[at]),
        "cached_tokens": int(done.cached_tokens[at]),
        "preemptions": int(done.preemptions[at]),
    }
    yield _slice(done.ids[at], lane, edges[0], edges[-1], args)
    for phase, begin, end in zip(_PHASES, edges[:-1], edges[1:], strict=True):
        if end > begin:
            yield _slice(phase, lane, begin, end, {})


def _slice(name: str, lane: int, begin: int, end: int, args: dict[str, int]) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "pid": _REQUESTS, "tid": lane, "ts": begin}
    return event | {"dur": end - begin} | ({"args": args} if args else {})


def _counters(run: Run) -> Iterator[dict[str, Any]]:
    """Counter events for the ledger's bytes and for running and waiting sequences, at
    each change.
    """
    table = run.memory
    columns = [table[f"{name}_bytes"].tolist() for name in CLASSES]
    starts = table["start_ps"].tolist()
    for at, (running, waiting) in enumerate(
        zip(table["num_running"].tolist(), table["num_waiting"].tolist(), strict=True)
    ):
        moment = {"ph": "C", "pid": _ENGINE, "tid": 0, "ts": starts[at] // PS_PER_US}
        ledger = {name: column[at] for name, column in zip(CLASSES, columns, strict=True)}
        yield moment | {"name": "KV memory, bytes", "args": ledger}
        yield moment | {"name": "sequences", "args": {"running": running, "waiting": waiting}}
