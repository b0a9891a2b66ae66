"""Short answer of a what-if command in 24 lines: verdict, one table, commands to run next."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvsim.report.numbers import plural
from kvsim.report.screen import LINES, height, print_plain
from kvsim.whatif.findings import CommandText, Findings, FindingsTable, terminal_table

if TYPE_CHECKING:
    from rich.console import Console

_TABLE_HEAD = 4  # a blank line, the title, the heads and their rule
_LEAST_ROWS = 4
_LONGEST_COMMAND = 4  # lines; a longer one is left to --verbose


def print_brief_findings(findings: Findings, console: "Console", *, draws: bool) -> None:
    """Print the verdict, the first table and the short leading commands, in at most LINES lines of
    80 columns.

    The last line mentions --verbose. draws: whether the command has an option --out, which the last
    line then mentions too.
    """
    verdict = findings.sentences[: findings.num_verdict]
    commands = [
        f"{each.title}: {each.text}"
        for each in findings.sections
        if isinstance(each, CommandText)
        and each.lead
        and height(f"{each.title}: {each.text}", console) <= _LONGEST_COMMAND
    ]
    tables = [
        each
        for each in findings.sections
        if isinstance(each, FindingsTable) and each.terminal_rows != 0
    ]
    last = "next: --verbose prints everything" + ("; --out DIR draws it" if draws else "")
    ends = [line for line in (findings.brief_interval, *commands, last) if line]
    room = LINES - sum(height(line, console) for line in (*verdict, *ends))
    print_plain(console, *verdict)
    rest = findings.sentences[findings.num_verdict :]
    for sentence in _fitting(rest, room - _TABLE_HEAD - _LEAST_ROWS, console):
        print_plain(console, sentence)
        room -= height(sentence, console)
    if tables:
        _print_table(tables[0], room, console)
    print_plain(console, *ends)


def _print_table(table: FindingsTable, room: int, console: "Console") -> None:
    """Print as many rows as fit into `room` lines, and below the table how many are left out."""
    left = table.rows if table.terminal_rows is None else table.rows[: table.terminal_rows]
    for most in range(len(left), 0, -1):
        hidden = len(table.rows) - most
        shown = terminal_table(table._replace(terminal_rows=most))
        lines = len(console.render_lines(shown, pad=False)) + 1 + bool(hidden)
        if lines <= room:
            print_plain(console, "")
            console.print(shown)
            if hidden:
                print_plain(console, f"and {plural(hidden, 'more row')}")
            return


def _fitting(sentences: Sequence[str], room: int, console: "Console") -> Iterator[str]:
    for sentence in sentences:
        room -= height(sentence, console)
        if room < 0:
            return
        yield sentence
