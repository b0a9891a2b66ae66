"""The document that every what-if tool answers with: sentences, tables, figures and commands.

A tool makes one `Findings`. The terminal, the HTML page and the Markdown text are rendered from it,
and its data is the JSON answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.plumbing.toml import to_toml
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


class FindingsColumn(NamedTuple):
    """A column of a table: its head, and how a value of it is written, the unit included.
    page_only: a terminal leaves the column out.
    """

    head: str
    text: Callable[[Any], str] = str
    page_only: bool = False


class FindingsTable(NamedTuple):
    """A table. note: how to read it. columns: a bare head stands for a column of texts. rows: of
    values, the first of which names the row. terminal_rows: how many a terminal shows at most;
    with 0 the table is for pages alone. has_total: the last row sums up those above it.
    """

    title: str
    note: str
    columns: Sequence[FindingsColumn | str]
    rows: Sequence[Sequence[Any]]
    terminal_rows: int | None = None
    has_total: bool = False

    def texts(self, *, terminal: bool = False) -> tuple[list[str], list[list[str]]]:
        """The heads, and the rows as texts; for a terminal those alone that it shows."""
        columns = [FindingsColumn(each) if isinstance(each, str) else each for each in self.columns]
        shown = [at for at, each in enumerate(columns) if not (terminal and each.page_only)]
        rows = self.rows[: self.terminal_rows] if terminal else self.rows
        heads = [columns[at].head for at in shown]
        return heads, [[columns[at].text(row[at]) for at in shown] for row in rows]


class FindingsFigure(NamedTuple):
    """A figure of the page. figure: None where the note says why there is none."""

    title: str
    note: str
    figure: "go.Figure | None"


class CommandText(NamedTuple):
    """Commands or flags to be copied as they stand."""

    title: str
    note: str
    text: str


Section = FindingsTable | FindingsFigure | CommandText


@dataclass(frozen=True)
class Findings:
    """The answer of one tool. title: the question. facts: labelled counts of what was run.
    sentences: the verdict first. scenario: the tables that were simulated. data: the JSON answer.
    details: sentences that a terminal leaves out.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    sentences: Sequence[str]
    sections: Sequence[Section]
    scenario: Mapping[str, Any]
    data: Any
    details: Sequence[str] = ()


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
    for sentence in findings.sentences:
        console.print(sentence, markup=False, highlight=False)
    for section in findings.sections:
        if isinstance(section, CommandText):
            text = f"\n{section.title}:\n{section.text}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def terminal_table(section: FindingsTable) -> "Table":
    """The table in rich's form: names fold last, and nothing of a text is taken for markup."""
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
    """The HTML page, a file that loads nothing."""
    return rendered(
        "whatif.html",
        "kvsim.whatif",
        title=findings.title,
        facts=findings.facts,
        words=[*findings.sentences, *findings.details],
        sections=[_on_page(section) for section in findings.sections],
        version=VERSION,
        scenario=to_toml(findings.scenario),
    )


def _on_page(section: Section) -> dict[str, object]:
    """The fields of a section that the template reads; `form` says which kind it is."""
    fields: dict[str, object] = {"title": section.title, "note": section.note}
    if isinstance(section, FindingsTable):
        heads, rows = section.texts()
        return fields | {"form": "table", "heads": heads, "rows": rows}
    if isinstance(section, CommandText):
        return fields | {"form": "commands", "text": section.text}
    figure = section.figure
    data = None if figure is None else figure.to_json()
    height_px = 0 if figure is None else figure.layout.height
    return fields | {"form": "figure", "data": data, "height_px": height_px}


def markdown_of(findings: Findings) -> str:
    """The sentences, tables and commands as Markdown, for an issue or a pull request."""
    parts = [f"# {escaped(findings.title)}"]
    parts.append("\n".join(f"- {label}: {escaped(value)}" for label, value in findings.facts))
    parts += [escaped(sentence) for sentence in (*findings.sentences, *findings.details)]
    for section in findings.sections:
        if isinstance(section, FindingsFigure):
            continue  # drawn on the page alone
        parts += [f"## {escaped(section.title)}", escaped(section.note)]
        if isinstance(section, CommandText):
            parts.append(fenced(section.text, "sh"))
        else:
            heads, rows = section.texts()
            parts.append(pipe_table(*([*map(escaped, row)] for row in (heads, *rows))))
    parts += ["## The scenario", fenced(to_toml(findings.scenario), "toml")]
    return "\n\n".join(filter(None, parts)) + "\n"


def as_data(value: Any) -> Any:
    """Named tuples, mappings and sequences as the plain dictionaries and lists that JSON takes."""
    if hasattr(value, "_asdict") or hasattr(value, "as_json"):
        value = value._asdict() if hasattr(value, "_asdict") else value.as_json()
    if isinstance(value, Mapping):
        return {key: as_data(inner) for key, inner in value.items()}
    return [as_data(inner) for inner in value] if isinstance(value, list | tuple) else value
