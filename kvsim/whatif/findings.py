"""The document that every what-if command produces: sentences, tables, figures and commands.

A command makes one `Findings`. The terminal output, the HTML page and the Markdown text are
rendered from it; its `data` is the JSON answer.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.plumbing.toml import to_toml
from kvsim.report.classes import DARK
from kvsim.report.figure import DARK_INKS
from kvsim.report.formats.markdown import escaped, fenced, pipe_table
from kvsim.report.numbers import plural
from kvsim.report.table_style import empty_table
from kvsim.report.template import rendered
from kvsim.version import VERSION

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import Console
    from rich.table import Table

LONGEST_NAME = 30  # characters of a row's name that a terminal never folds
WIDE = 7  # columns, from which on a page folds intervals
LONGEST_PART = 28  # characters of a cell that a page never folds


class FindingsColumn(NamedTuple):
    """A column of a table: its head, and the function that formats a value with its unit.
    page_only: the terminal output omits the column.
    """

    head: str
    text: Callable[[Any], str] = str
    page_only: bool = False


class FindingsTable(NamedTuple):
    """A table of the answer.

    note: how to read it. columns: a plain string is the head of a column of texts. rows: tuples of
    values; the first value is the row's name. terminal_rows: the most rows that a terminal shows;
    with 0 only pages show the table. has_total: whether the last row is the sum of the others.
    """

    title: str
    note: str
    columns: Sequence[FindingsColumn | str]
    rows: Sequence[Sequence[Any]]
    terminal_rows: int | None = None
    has_total: bool = False

    def texts(self, *, terminal: bool = False) -> tuple[list[str], list[list[str]]]:
        """The heads, and the rows formatted as texts. terminal: only the columns and rows that a
        terminal shows.
        """
        columns = [FindingsColumn(each) if isinstance(each, str) else each for each in self.columns]
        shown = [at for at, each in enumerate(columns) if not (terminal and each.page_only)]
        rows = self.rows[: self.terminal_rows] if terminal else self.rows
        heads = [columns[at].head for at in shown]
        return heads, [[columns[at].text(row[at]) for at in shown] for row in rows]


class FindingsFigure(NamedTuple):
    """A figure of the page. draw: called only for the page, as the terminal needs no plotly; if it
    returns None, the figure is omitted. lead: whether it belongs to the verdict, so that the page
    shows it on the first screen.
    """

    title: str
    note: str
    draw: "Callable[[], go.Figure | None]"
    lead: bool = False


class CommandText(NamedTuple):
    """Commands or flags to copy unchanged. lead: whether this is the main thing to do, so that the
    page shows it on the first screen.
    """

    title: str
    note: str
    text: str
    lead: bool = False


class HeatGrid(NamedTuple):
    """One number over two keys. label: the allocator. across, up: the keys. xs, ys: the keys'
    values. cells: rows of (text, shade), where shade is 0 for the best and 1 for the worst.
    """

    label: str
    across: str
    up: str
    xs: Sequence[str]
    ys: Sequence[str]
    cells: Sequence[Sequence[tuple[str, float]]]


class FindingsGrids(NamedTuple):
    """Grids with shaded cells, only for pages; a phone shows them one below the other."""

    title: str
    note: str
    grids: Sequence[HeatGrid]


Section = FindingsTable | FindingsFigure | CommandText | FindingsGrids


@dataclass(frozen=True)
class Findings:
    """The answer of one what-if command.

    title: the question. facts: labelled counts of what was simulated. sentences: the verdict first.
    scenario: the tables that were simulated; empty if nothing was. data: the JSON answer. details:
    sentences that a terminal omits. interval: the expected error of the seconds. brief_interval:
    that error in one line, for a short answer. num_verdict: how many of the sentences the page
    shows on its first screen.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    sentences: Sequence[str]
    sections: Sequence[Section]
    scenario: Mapping[str, Any]
    data: Any
    details: Sequence[str] = ()
    interval: Sequence[str] = ()
    brief_interval: str = ""
    num_verdict: int = 1


def print_findings(findings: Findings, console: "Console") -> None:
    """Print the tables with their notes, the sentences, and the commands."""
    for section in findings.sections:
        if isinstance(section, FindingsTable) and section.terminal_rows != 0:
            console.print(terminal_table(section))
            hidden = len(section.rows[section.terminal_rows :]) if section.terminal_rows else 0
            more = f"Not shown: {plural(hidden, 'more row')}." if hidden else ""
            if note := " ".join(filter(None, [section.note, more])):
                console.print(note, markup=False, highlight=False)
            console.print()
    for sentence in (*findings.sentences, *findings.interval):
        console.print(sentence, markup=False, highlight=False)
    for section in findings.sections:
        if isinstance(section, CommandText):
            text = f"\n{section.title}:\n{section.text}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def terminal_table(section: FindingsTable) -> "Table":
    """The table for rich: names wrap last, and markup in texts is not interpreted."""
    from rich.markup import escape

    heads, rows = section.texts(terminal=True)
    table = empty_table(escape(section.title))
    short = max((len(row[0]) for row in rows), default=0) <= LONGEST_NAME
    for at, head in enumerate(heads):
        justify, keep = ("right", False) if at else ("left", short)
        table.add_column(escape(head), justify=justify, no_wrap=keep, overflow="fold")  # type: ignore[arg-type]
    for at, row in enumerate(rows, start=1):
        table.add_row(*map(escape, row), end_section=section.has_total and at == len(rows) - 1)
    return table


def page_of(findings: Findings) -> str:
    """The HTML page, which loads nothing from the network. The first screen has the verdict and the
    leading commands and figure; the other sentences and sections follow.
    """
    drawn = [
        (each, each.draw() if isinstance(each, FindingsFigure) else None)
        for each in findings.sections
    ]
    shown = [
        (each, figure)
        for each, figure in drawn
        if not isinstance(each, FindingsFigure) or figure is not None
    ]
    first = [pair for pair in shown if getattr(pair[0], "lead", False)]
    first.sort(key=lambda pair: isinstance(pair[0], FindingsFigure))
    rest = [pair for pair in shown if not getattr(pair[0], "lead", False)]
    words = [*findings.sentences, *findings.details, *findings.interval]
    return rendered(
        "whatif.html",
        "kvsim.whatif",
        title=findings.title,
        facts=findings.facts,
        verdict=words[: findings.num_verdict],
        words=words[findings.num_verdict :],
        sections=[_on_page(at, *pair) for at, pair in enumerate([*first, *rest])],
        num_first=len(first),
        dark=json.dumps(DARK | DARK_INKS),
        version=VERSION,
        scenario=to_toml(findings.scenario),
    )


def _on_page(at: int, section: Section, figure: "go.Figure | None") -> dict[str, object]:
    """The values of a section for the page's template; `form` is its kind (table, figure, ...)."""
    fields: dict[str, object] = {"id": f"s{at}", "title": section.title, "note": section.note}
    if isinstance(section, FindingsTable):
        heads, rows = section.texts()
        glued = [[_glued(cell, wide=len(heads) > WIDE) for cell in row] for row in rows]
        return fields | {"form": "table", "heads": heads, "rows": glued}
    if isinstance(section, CommandText):
        return fields | {"form": "commands", "text": section.text}
    if isinstance(section, FindingsGrids):
        return fields | {"form": "grids", "grids": section.grids}
    assert figure is not None
    fields |= {"data": figure.to_json(), "height_px": figure.layout.height}
    return fields | {"form": "figure"}


def _glued(text: str, *, wide: bool) -> str:
    """A cell in which no line breaks between a number and its unit.

    Lines may break before a bracket or after a comma; in a wide table also before the upper end of
    an interval.
    """
    if wide:
        text = text.replace(" to ", "\0to ")
    parts = text.replace(" (", "\0(").replace(", ", ",\0").split("\0")
    if max(map(len, parts)) > LONGEST_PART:
        return text.replace("\0", " ")
    return " ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


def markdown_of(findings: Findings) -> str:
    """The sentences, tables and commands as Markdown, for an issue or a pull request."""
    parts = [f"# {escaped(findings.title)}"]
    parts.append("\n".join(f"- {label}: {escaped(value)}" for label, value in findings.facts))
    parts += [
        escaped(sentence)
        for sentence in (*findings.sentences, *findings.details, *findings.interval)
    ]
    for section in findings.sections:
        if isinstance(section, FindingsFigure):
            continue  # drawn on the page alone
        parts += [f"## {escaped(section.title)}", escaped(section.note)]
        if isinstance(section, CommandText):
            parts.append(fenced(section.text, "sh"))
            continue
        tables = [section.texts()] if isinstance(section, FindingsTable) else []
        if isinstance(section, FindingsGrids):
            tables = [_grid_texts(grid) for grid in section.grids]
        for heads, rows in tables:
            parts.append(pipe_table(*([*map(escaped, row)] for row in (heads, *rows))))
    if findings.scenario:
        parts += ["## The scenario", fenced(to_toml(findings.scenario), "toml")]
    return "\n\n".join(filter(None, parts)) + "\n"


def _grid_texts(grid: HeatGrid) -> tuple[list[str], list[list[str]]]:
    rows = zip(grid.ys, grid.cells, strict=True)
    heads = [f"{grid.label}: {grid.up}", *(f"{grid.across} {x}" for x in grid.xs)]
    return heads, [[y, *(text for text, _ in row)] for y, row in rows]


def as_data(value: Any) -> Any:
    """Named tuples, mappings and sequences converted to plain dicts and lists for JSON."""
    if hasattr(value, "_asdict") or hasattr(value, "as_json"):
        value = value._asdict() if hasattr(value, "_asdict") else value.as_json()
    if isinstance(value, Mapping):
        return {key: as_data(inner) for key, inner in value.items()}
    return [as_data(inner) for inner in value] if isinstance(value, list | tuple) else value
