"""The initial page: heading, controls at the side, and room for results."""

from uuid import uuid4

from dash import dcc, html
from dash.development.base_component import Component

from kvsim.explore.page_context import PageContext
from kvsim.explore.starting_points import TOUR
from kvsim.report.measures import MEASURES
from kvsim.version import VERSION

TICK_MS = 250
SWEEP_MEASURES = [name for name, measure in MEASURES.items() if measure.always]


def make_layout(context: PageContext) -> Component:
    """A new page; every browser tab has a name of its own, under which it requests jobs."""
    return html.Div(
        [
            dcc.Location(id="address", refresh=False),
            dcc.Store(id="tab", data=uuid4().hex),
            *(dcc.Store(id=name) for name in ("visit", "awaited", "shown", "drawn", "theme")),
            dcc.Download(id="download"),
            dcc.Interval(id="tick", interval=TICK_MS, disabled=True),
            dcc.Interval(id="sweep-tick", interval=TICK_MS, disabled=True),
            _head(context),
            html.Nav(id="tour", className="tour", **{"aria-label": "The tour"}),
            html.Section(id="stop"),
            html.Div([_side(), _results()], className="workspace"),
        ],
        className="explore",
    )


def _head(context: PageContext) -> Component:
    names = [name for name in context.starting_points if not name.startswith(TOUR)]
    return html.Header(
        [
            html.H1("kvsim explore"),
            html.Label(
                [
                    html.Span("start from"),
                    dcc.Dropdown(
                        id="base",
                        options=[{"label": name, "value": name} for name in names],
                        clearable=False,
                        searchable=False,
                        placeholder="a scenario",
                    ),
                ],
                className="field start",
            ),
            html.Button("Dark", id="theme-button", className="plain"),
        ]
    )


def _side() -> Component:
    return html.Aside(
        [
            html.Details(
                [html.Summary("What is simulated"), html.Div(id="controls")],
                open=True,
                id="controls-fold",
            )
        ]
    )


def _results() -> Component:
    return html.Main(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.Button("Run", id="run", className="main"),
                            html.Button("Cancel", id="cancel", disabled=True),
                            dcc.Checklist(
                                id="auto",
                                options=[{"label": "at every change", "value": "auto"}],
                                value=["auto"],
                            ),
                            html.Button("Pin", id="pin"),
                            html.Button("Save the scenario", id="save", disabled=True),
                            html.A("The whole report", id="report", target="_blank", hidden=True),
                        ],
                        className="buttons",
                    ),
                    html.Div(html.Div(id="bar"), className="progress"),
                    html.P(id="progress", role="status"),
                    html.P(id="fault", role="alert"),
                ],
                className="runner",
            ),
            html.Div(id="pins"),
            html.P(id="results-of", role="status", className="of"),
            html.Div(id="results"),
            _sweep(),
            html.Details(
                [html.Summary("The same on the command line"), html.Pre(id="command")],
                className="command",
            ),
            html.Footer(
                f"Made by kvsim {VERSION}, a simulator: these numbers are computed, not measured."
            ),
        ]
    )


def _sweep() -> Component:
    def number(name: str, title: str) -> Component:
        field = dcc.Input(id=name, type="text", inputMode="decimal", autoComplete="off")
        return html.Label([html.Span(title), field], className="field short")

    return html.Section(
        [
            html.H2("One knob as a curve"),
            html.P(
                "The scenario above, once for each value, between its ends by equal factors.",
                className="note",
            ),
            html.Div(
                [
                    html.Label(
                        [html.Span("knob"), dcc.Dropdown(id="sweep-key", clearable=False)],
                        className="field",
                    ),
                    number("sweep-low", "from"),
                    number("sweep-high", "to"),
                    number("sweep-count", "values"),
                    html.Label(
                        [
                            html.Span("draw"),
                            dcc.Dropdown(
                                id="sweep-measure",
                                options=[
                                    {"label": MEASURES[name].title, "value": name}
                                    for name in SWEEP_MEASURES
                                ],
                                value="tokens_per_s",
                                clearable=False,
                            ),
                        ],
                        className="field",
                    ),
                    html.Button("Sweep", id="sweep-run", className="main"),
                    html.Button("Cancel", id="sweep-cancel", disabled=True),
                ],
                className="sweep",
            ),
            html.Div(html.Div(id="sweep-bar"), className="progress"),
            html.P(id="sweep-progress", role="status"),
            html.Div(id="curve"),
        ],
        id="sweep",
    )
