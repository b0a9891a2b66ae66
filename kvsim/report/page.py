"""The HTML report: one file that contains everything, opens offline and can be sent to anyone."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from kvsim.plumbing.toml import to_toml
from kvsim.report.address_map import address_maps
from kvsim.report.answer import answer
from kvsim.report.bottleneck import limits, room
from kvsim.report.cards import cards, how_to_read
from kvsim.report.classes import DARK, LOOKS, run_line
from kvsim.report.figure import DARK_INKS
from kvsim.report.figures import FIGURES
from kvsim.report.filled_page import Drawn, whole_page
from kvsim.report.measured import measured_table
from kvsim.report.measures import MEASURES, best, shown
from kvsim.report.names import called
from kvsim.report.numbers import count, listed, percent, plural, size
from kvsim.report.parts import part_rows
from kvsim.report.remarks import remarks
from kvsim.report.request_list import request_list
from kvsim.report.template import inert
from kvsim.report.transfers import served
from kvsim.report.windows import window_rows, window_title
from kvsim.report.words import paragraphs
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary

_TITLE_LABELS = 4
_OWN_TIMES = "Each replica's numbers are over its own makespan, from its first arrival to its end."
_SEEN = 0.001  # of the pool: a class with less is no pixel wide, and the key leaves it out


def make_page(result: Result) -> str:
    """The whole report as HTML, which loads nothing from the network (0.5 MB are plotly.js)."""
    return whole_page(contents(result))


def contents(result: Result, names: Iterable[str] = FIGURES) -> dict[str, Any]:
    """Texts and figures of the page as plain values, from which `filled_page` renders it. names:
    the figures to draw.
    """
    runs = [run.summary for run in result.runs]
    labels = [run.label for run in runs]
    listed_requests = request_list(result)
    maps = address_maps(result, listed_requests.places)
    data = {"requests": listed_requests.data, "maps": maps, "dark": DARK | DARK_INKS}
    return {
        "title": f"Where the KV memory went: {_together(result)}",
        "facts": _facts(result),
        "answer": answer(result),
        "words": paragraphs(result),
        "limits": list(limits(result.fleets or runs, result.scenario)),
        "room": room(result.fleets or served(runs)),
        "remarks": remarks(result),
        "cards": cards(result),
        "classes_seen": [
            look.name
            for look in LOOKS
            if any(run.memory.time_mean.of(look.name) >= _SEEN for run in runs)
        ],
        "seen": percent(_SEEN),
        "next": _next(result),
        "is_fleet": bool(result.fleets),
        "bars_mean": _OWN_TIMES if result.fleets else how_to_read(cards(result)),
        "labels": labels,
        "table": _table(runs),
        "measured": measured_table(result),
        "parts": part_rows(runs),
        "windows": window_rows(runs),
        "window_title": window_title(runs),
        "maps": [(at, label) for at, label in enumerate(labels) if maps[at] is not None],
        "left_out": count(listed_requests.left_out) if listed_requests.left_out else "",
        "data": inert(json.dumps(data, ensure_ascii=False, allow_nan=False)),
        "figures": _figures(result, names),
        "version": result.version,
        "scenario": to_toml(result.scenario),
    }


def _figures(result: Result, names: Iterable[str]) -> dict[str, Drawn]:
    drawn = {}
    for name in names:
        figure = FIGURES.get(name)()
        plot = figure.draw(result)
        data = None if plot is None else plot.to_json()
        height = 0 if plot is None else plot.layout.height
        lines = _with_lines(plot, len(result.runs)) if plot is not None and figure.lines else ()
        drawn[name] = Drawn(
            name,
            figure.title,
            figure.note,
            figure.nothing,
            figure.span,
            lines,
            _classes_in(plot) if plot is not None and figure.classes else (),
            height,
            data,
        )
    return drawn


def _classes_in(plot: go.Figure) -> tuple[str, ...]:
    """The ledger classes that have an area in the figure."""
    names = {trace.name for trace in plot.data}
    return tuple(look.name for look in LOOKS if look.name in names)


def _with_lines(plot: go.Figure, count: int) -> tuple[int, ...]:
    """Indices, below `count`, of the runs that have a line in the figure; found by the line's
    colour.
    """
    colours = {
        trace.line.color
        for trace in plot.data
        if trace.mode == "lines" and trace.x is not None and len(trace.x)
    }
    return tuple(place for place in range(count) if run_line(place)["color"] in colours)


def _next(result: Result) -> tuple[str, str]:
    """A sentence on what to try next, and the command: capacity for several replicas, which the
    doctor does not support, else the doctor.
    """
    if {"fleet", "disaggregation"} & set(result.scenario):
        limit = "Next, in this page's folder, the highest rate with 99 % of first tokens in 2 s:"
        return limit, "kvsim capacity scenario.toml --slo ttft_s.p99=2"
    cause = "Next, in this page's folder, what slows the run and the flag that cures it:"
    return cause, "kvsim doctor scenario.toml"


def _table(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Rows of the key numbers: title, meaning, a text per run, and the indices of the best runs."""
    return [
        {
            "title": measure.title,
            "meaning": measure.meaning,
            "texts": [measure.text(run) for run in runs],
            "best": best(measure, runs),
        }
        for measure in shown(list(MEASURES), runs)
    ]


def _facts(result: Result) -> list[tuple[str, str]]:
    """(label, value) facts of the run, for the line under the title."""
    scenario = result.scenario
    memory = result.runs[0].summary.memory
    requests = (result.fleets[0] if result.fleets else result.runs[0].summary).requests
    tokens = memory.capacity_tokens  # states do not grow with them
    room = f", {count(tokens)} tokens" if tokens else ""
    found = [
        ("requests", count(requests.submitted)),
        ("workload", _name(scenario.get("workload"), "name", "path", "kind")),
        ("model", _name(scenario.get("model"), "name", "hf_config")),
        ("device", _devices(scenario.get("device"))),
        ("pool", f"{size(memory.capacity_bytes)}{room}"),
        ("scheduler", _name(scenario.get("scheduler"), "kind")),
        ("step time", _name(scenario.get("step_time"), "kind")),
        ("seed", str(scenario.get("seed", 0))),
    ]
    return [(label, value) for label, value in found if value]


def _together(result: Result) -> str:
    """The runs' labels for the title; of a fleet, its label and number of replicas."""
    names = [_with_replicas(run) for run in served([run.summary for run in result.runs])]
    if result.fleets:
        names = [f"{plural(each.replicas, 'replica')} of {each.label}" for each in result.fleets]
    return listed(names) if len(names) <= _TITLE_LABELS else f"{len(names)} runs compared"


def _with_replicas(run: RunSummary) -> str:
    """The run's label, with its number of prefill and decode replicas if they are separate."""
    found = run.transfers
    if found is None:
        return called(run.label)
    decode = plural(found.decode_replicas, "decode replica")
    return f"{called(run.label)}, {count(found.prefill_replicas)} prefill and {decode}"


def _devices(table: object) -> str:
    """The GPU's name, and the GPUs of pipeline stages that have another one."""
    others = table.get("stage") or () if isinstance(table, dict) else ()
    named = [f"{each.get('name', 'changed')} in stage {each['number']}" for each in others]
    return ", ".join([_name(table, "name"), *named])


def _name(table: object, *keys: str) -> str:
    """The value of the first of `keys` that the table contains; of a path, its last part."""
    if not isinstance(table, dict):
        return ""
    value = next((table[key] for key in keys if table.get(key)), "")
    return value.rsplit("/", 1)[-1] if isinstance(value, str) else json.dumps(value)
