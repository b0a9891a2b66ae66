"""Page components for results: sentences, cards, comparisons of numbers, and the report's
figures.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dash import dcc, html
from dash.development.base_component import Component

from kvsim.explore.task import LEAD
from kvsim.explore.theme import themed
from kvsim.report.classes import DARK, LOOKS, ClassLook, run_line
from kvsim.report.measures import MEASURES, best, shown
from kvsim.report.names import called

CONFIG = {"displayModeBar": False, "displaylogo": False, "responsive": True}
_FIRST_WORDS = 2  # paragraphs above it


class ResultColumn(NamedTuple):
    """One result in a comparison.

    name: heading, such as its settings. key: key of its job. held: the report's `contents` and the
    `runs`.
    """

    name: str
    key: str
    held: dict[str, Any]


def drawn(columns: Sequence[ResultColumn], dark: bool, *, preview: bool = False) -> list[Component]:
    """All components of the results. The last column is the present state's result, earlier columns
    are pinned runs.

    Without columns nothing was run. preview: the last column has only the first requests. It has no
    pages of address maps, and shows only the first screen, since every further component delays the
    first picture.
    """
    if not columns:
        return []
    names = [
        name
        for name in columns[-1].held["figures"]
        if any(column.held["figures"][name].data is not None for column in columns)
    ]
    return [
        *(_pictures(name, columns, dark) for name in names if name == LEAD),
        *_words(columns[-1].held),
        *([] if preview else [_classes(dark)]),
        *_story(columns[-1].held, dark),
        *([] if preview else _rest(names, columns, dark)),
    ]


def _rest(names: Sequence[str], columns: Sequence[ResultColumn], dark: bool) -> list[Component]:
    """The components below the first screen."""
    return [
        _numbers(columns),
        _row("map", "The address map", "", columns, [_map(each, dark) for each in columns]),
        *(_pictures(name, columns, dark) for name in names if name != LEAD),
    ]


def _words(held: dict[str, Any]) -> list[Component]:
    """Sentences: the answer to the scenario's question, and the first statements of the report."""
    said = [*([held["answer"]] if held["answer"] else []), *held["words"]][:_FIRST_WORDS]
    return [html.Div([html.P(paragraph) for paragraph in said], className="words")]


def _story(held: dict[str, Any], dark: bool) -> list[Component]:
    rest = held["words"][_FIRST_WORDS - bool(held["answer"]) :]
    parts = [html.P(paragraph) for paragraph in rest]
    remarks = [html.Li(each) for each in held["remarks"]]
    found: list[Component] = [
        html.Div([_card(card, dark) for card in held["cards"]], className="cards"),
        *([html.P(held["bars_mean"], className="note")] if held["bars_mean"] else []),
        html.Div(parts, className="words rest"),
    ]
    if remarks:
        found.append(html.Aside(html.Ul(remarks), className="remarks"))
    return found


def _card(card: Any, dark: bool) -> Component:
    lines = []
    for line in card.lines:
        hue = run_line(line.place)["color"]
        colour = {"backgroundColor": DARK.get(hue, hue) if dark else hue}
        bar = html.Span(className="bar none")
        if line.share is not None:
            width = {"width": f"{100 * line.share:.1f}%"}
            bar = html.Span(html.Span(style=width | colour), className="bar")
        lines.append(
            html.Div(
                [
                    html.Span(html.Bdi(line.label), className="label"),
                    html.Span(line.text, className="number best" if line.best else "number"),
                    bar,
                ],
                className="line",
            )
        )
    return html.Section([html.H2(card.title), *lines, html.P(card.meaning)], className="card")


def _numbers(columns: Sequence[ResultColumn]) -> Component:
    """A table of the key numbers of all runs of all columns."""
    runs = [run for column in columns for run in column.held["runs"]]
    heads = [
        html.Th(
            [html.Bdi(run.label)]
            + ([html.Small(html.Bdi(column.name))] if len(columns) > 1 else []),
            scope="col",
        )
        for column in columns
        for run in column.held["runs"]
    ]
    rows = []
    for measure in shown(list(MEASURES), runs):
        cells = []
        for column in columns:  # another column may have met other requests
            top = best(measure, column.held["runs"])
            cells += [
                html.Td(measure.text(run), className="best" if at in top else "")
                for at, run in enumerate(column.held["runs"])
            ]
        rows.append(html.Tr([html.Th(measure.title, scope="row"), *cells]))
    table = html.Table([html.Thead(html.Tr([html.Th(), *heads])), html.Tbody(rows)])
    return html.Section([html.H2("Key numbers"), html.Div(table, className="scroll")], id="numbers")


def _row(
    name: str, title: str, note: str, columns: Sequence[ResultColumn], cells: Sequence[Component]
) -> Component:
    """One figure for each column, next to each other."""
    if len(columns) > 1:
        cells = [
            html.Div([html.H3(html.Bdi(column.name)), cell])
            for column, cell in zip(columns, cells, strict=True)
        ]
    return html.Section(
        [
            html.H2(title),
            *([html.P(note, className="note")] if note else []),
            html.Div(list(cells), className="columns", style={"--columns": str(len(columns))}),
        ],
        id=f"section-{name}",
    )


def _map(column: ResultColumn, dark: bool) -> Component:
    theme = "dark" if dark else "light"
    source = f"/runs/{column.key}/map.html?theme={theme}"
    return html.Iframe(src=source, title=f"The address map of {called(column.name)}")


def _pictures(name: str, columns: Sequence[ResultColumn], dark: bool) -> Component:
    cells: list[Component] = []
    for column in columns:
        figure = column.held["figures"][name]
        if figure.data is None:
            cells.append(html.P(figure.nothing, className="nothing"))
            continue
        graph = dcc.Graph(
            figure=themed(figure.data, dark),
            config=CONFIG,
            responsive=True,
            style={"height": f"{figure.height_px}px"},
        )
        labels = {place: column.held["labels"][place] for place in figure.lines}
        keys = [_runs_key(labels, dark)] if labels else []
        if figure.classes:
            seen = column.held["classes_seen"] if name == LEAD else figure.classes
            keys.append(_classes_key(seen, dark))
        cells.append(html.Div([*keys, graph], className="picture"))
    figure = columns[-1].held["figures"][name]
    return _row(name, figure.title, figure.note, columns, cells)


def _classes_key(names: Sequence[str], dark: bool) -> Component:
    """The legend of the ledger's classes."""
    shown = [look for look in LOOKS if look.name in names]
    return html.P(
        [html.Span([_swatch(look, dark, html.I), look.name]) for look in shown], className="keys"
    )


def _swatch(look: ClassLook, dark: bool, kind: type[Component] = html.Span) -> Component:
    colour = DARK.get(look.colour, look.colour) if dark else look.colour
    return kind(
        className="swatch hatched" if look.pattern else "swatch",
        style={"backgroundColor": colour},
    )


def _classes(dark: bool) -> Component:
    """The ten classes of the ledger, by their colours."""
    found = []
    for look in LOOKS:
        name = html.Dt([_swatch(look, dark), f"{look.name} ", html.Small(look.family)])
        found.append(html.Div([name, html.Dd(look.meaning)]))
    summary = html.Summary("what the colours mean")
    return html.Details([summary, html.Dl(found, className="classes")])


def _runs_key(labels: Mapping[int, str], dark: bool) -> Component:
    """The legend of the runs at these places."""
    items = []
    for place, label in labels.items():
        line = run_line(place)
        hue = DARK.get(line["color"], line["color"]) if dark else line["color"]
        style = "solid" if line["dash"] == "solid" else "dashed"
        items.append(html.Li([html.I(style={"borderTop": f"3px {style} {hue}"}), html.Bdi(label)]))
    return html.Ul(items, className="runs")
