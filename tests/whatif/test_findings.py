"""Findings print every text on a narrow terminal, on the page and in Markdown."""

import io
from collections import Counter
from typing import Any

import pytest
from rich.console import Console

from kvsim.report.figure import PAPER
from kvsim.report.numbers import percent
from kvsim.whatif.brief_findings import print_brief_findings
from kvsim.whatif.findings import (
    CommandText,
    Findings,
    FindingsColumn,
    FindingsFigure,
    FindingsGrids,
    FindingsTable,
    HeatGrid,
    as_data,
    markdown_of,
    page_of,
    print_findings,
    terminal_table,
)
from kvsim.whatif.intervals import Ratio
from kvsim.whatif.whiskers import Whisker, whiskers

HEADS = ("", "today", "instead", "e2e_s.mean", "")
ROWS = (
    ("kv_cache_dtype", "auto", "fp8", "-58 % (-94 to +189)", "no difference seen"),
    ("long_prefill_token_threshold", "0", "512", "-5 % (-9 to -1)", "refuses 947 requests"),
)
COLUMNS = ("", FindingsColumn("share", percent), FindingsColumn("more", str, page_only=True))
DOCUMENT = Findings(
    "What is it?",
    [("runs", "7")],
    ["It is [this]."],
    [
        FindingsTable("Shares", "Of all.", COLUMNS, [("a", 0.5, "x|1"), ("b", 0.25, "x2")], 1),
        FindingsTable("Failures", "", ("", "why"), [("c", "no reason")], terminal_rows=0),
        CommandText("The cure", "In order.", "vllm serve --flag " + 20 * "word "),
    ],
    {"seed": 3},
    {"answer": 1},
    ["A detail <b>."],
)


def printed(thing: Any, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    if isinstance(thing, Findings):
        print_findings(thing, console)
    else:
        console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_findings_print_every_text_at_any_width(width: int) -> None:
    text = printed(terminal_table(FindingsTable("Changes", "", HEADS, ROWS)), width)
    wanted = " ".join(["Changes", *HEADS, *(cell for row in ROWS for cell in row)])
    letters = Counter(text) - Counter(" \n─" * len(text))
    assert letters == Counter(wanted.replace(" ", ""))


def test_terminal_table_counts_the_rows_it_leaves_out() -> None:
    text = printed(DOCUMENT, 60)
    assert "50 %" in text
    assert "Of all. Not shown: 1 more row." in text
    for left_out in ("25 %", "x|1", "Failures", "A detail"):
        assert left_out not in text
    assert "It is [this]." in text
    assert "The cure:\nvllm serve --flag " + 19 * "word " + "word" in text  # never folded


def test_page_and_markdown_contain_every_part_and_escape_texts() -> None:
    page = page_of(DOCUMENT).replace("\N{NO-BREAK SPACE}", " ")
    markdown = markdown_of(DOCUMENT)
    for text in (page, markdown):
        for part in ("What is it?", "50 %", "25 %", "Failures", "no reason", "seed = 3"):
            assert part in text
    assert 'id="plotly"' not in page  # no figure asks for it
    assert "A detail &lt;b&gt;." in page
    assert "A detail \\<b\\>." in markdown
    assert "| a | 50 % | x\\|1 |" in markdown
    assert "```sh\nvllm serve" in markdown


def test_the_page_begins_with_the_verdict_the_command_and_the_figure() -> None:
    figure = whiskers([Whisker("a<b>", 2.0, 1.0, 90.0, "2 s (1 s to 90 s)", True)], "e2e, s")
    assert figure is not None
    low, high = figure.layout.xaxis.range
    assert low <= 0 < 2 < high < 10  # the interval leaves the figure, the mean does not
    assert figure.layout.annotations[1].text == "to 90.0 \N{RIGHTWARDS ARROW}"
    assert [each.bgcolor for each in figure.layout.annotations] == [PAPER] * 2  # no line through it
    grid = HeatGrid("paged<b>", "rate_per_s", "block_size", ["1", "2"], ["8"],
                    [[("3 s", 0.0), ("9 s", 1.0)]])  # fmt: skip
    sections = [
        FindingsTable("Signs", "", ("", "x"), [("y", "z")]),
        FindingsFigure("Not drawn", "", lambda: None),
        FindingsGrids("Over two keys", "", [grid]),
        FindingsFigure("The gain", "", lambda: figure, lead=True),
        CommandText("Act", "", "vllm serve x", lead=True),
    ]
    document = Findings("Which?", [], ["This one.", "And why."], sections, {}, {})
    page, markdown = page_of(document), markdown_of(document)
    body = page[page.index("</nav>") : page.index("<footer>")]
    order = ("This one.", "vllm serve x", "<h2>The gain", "And why.", "<h2>Signs", "Over two keys")
    assert [body.index(each) for each in order] == sorted(body.index(each) for each in order)
    assert "Not drawn" not in page
    assert 'style="--shade: 100.0%">9 s' in page
    assert "paged&lt;b&gt;" in page
    assert "| 8 | 3 s | 9 s |" in markdown


def test_findings_as_data_are_plain_types() -> None:
    found = as_data({"of": Ratio(0.1, 0.0, 0.2), "names": ("a", "b"), "none": None})
    ratio = {"mean": 0.1, "low": 0.0, "high": 0.2}
    assert found == {"of": ratio, "names": ["a", "b"], "none": None}


def lines_of(findings: Findings) -> list[str]:
    file = io.StringIO()
    print_brief_findings(findings, Console(file=file, width=80), draws=True)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("rows", [0, 3, 40])
@pytest.mark.parametrize("sentences", [1, 40])
@pytest.mark.parametrize("flags", [1, 30])
def test_a_brief_answer_has_its_verdict_first_and_fits_a_terminal(
    rows: int, sentences: int, flags: int
) -> None:
    table = FindingsTable(
        "Settings", "", ("", "TTFT"), [(f"set {at}", "1 s") for at in range(rows)]
    )
    command = CommandText("Use", "", " ".join(["--flag-of-vllm-serve 1"] * flags), lead=True)
    words = ["The verdict."] + [f"A sentence of number {at}." for at in range(1, sentences)]
    found = lines_of(Findings("?", [], words, [table, command], {}, {}))
    assert len(found) <= 24
    assert found[0] == "The verdict."
    assert found[-1] == "next: --verbose prints everything; --out DIR draws it"
    assert ("Use: --flag-of-vllm-serve 1" in found) == (flags == 1)
    if rows == 40:
        shown = sum(line.startswith("set ") for line in found)
        assert f"and {40 - shown} more rows" in found


def test_text_output_does_not_draw_figures() -> None:
    """plotly need not be installed for output on a terminal."""

    def draw() -> None:
        pytest.fail("drawn")

    figure = FindingsFigure("The gain", "", draw, lead=True)
    findings = Findings("?", [], ["The verdict."], [figure], {}, {})
    assert lines_of(findings)[0] == "The verdict."
    assert "The verdict." in markdown_of(findings)
