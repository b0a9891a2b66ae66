"""Single figures and tables as files, for a paper."""

import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pandas as pd
import plotly.io
import pytest
import typer
from support.browser import needs_drawing
from typer.testing import CliRunner

import kvsim
from kvsim.commands.report import report
from kvsim.plumbing.errors import InputError
from kvsim.report.figure_files import DOTS_PER_PX, FIGURE_FORMS, WIDTH_PX
from kvsim.report.table_files import TABLE_FORMS, table_of
from kvsim.results import store
from kvsim.results.result import Result

APP = typer.Typer()
APP.command()(report)
COLUMNS = ["ttft_s.p50", "memory.time_mean.used", "requests.finished"]


def call(*words):
    return CliRunner().invoke(APP, [str(word) for word in words])


def test_each_name_has_one_entry_in_the_legend_of_a_figure(result):
    drawn = kvsim.figure(result, "ledger")
    entries = [trace.name for trace in drawn.data if trace.showlegend]
    assert len(entries) == len(set(entries)) > 3
    assert {trace.name for trace in drawn.data} == set(entries)
    assert drawn.layout.height >= 21 * len(entries)


@needs_drawing
def test_a_figure_as_svg_png_and_pdf_has_the_size_of_the_figure(result, tmp_path):
    store.write(tmp_path, result, "<html>")
    height = kvsim.figure(result, "shares").layout.height
    answer = call(tmp_path, "--figure", "shares", "--format", "svg,png,pdf")
    assert answer.exit_code == 0, answer.exception
    svg = ET.fromstring((tmp_path / "shares.svg").read_text())
    assert (float(svg.get("width", "")), float(svg.get("height", ""))) == (WIDTH_PX, height)
    words = "".join(svg.itertext())
    assert all(run.label in words for run in result.runs)
    png = (tmp_path / "shares.png").read_bytes()
    size = [int.from_bytes(png[at : at + 4], "big") for at in (16, 20)]
    assert size == [WIDTH_PX * DOTS_PER_PX, height * DOTS_PER_PX]
    assert (tmp_path / "shares.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_as_json_is_read_by_plotly_and_as_html_needs_no_network(result):
    drawn = kvsim.figure(result, "ttft")
    back = plotly.io.from_json(FIGURE_FORMS["json"](drawn).decode())
    assert back.layout.title.text == drawn.layout.title.text
    page = FIGURE_FORMS["html"](drawn).decode()
    assert "default-src 'none'" in page
    assert "Plotly.newPlot" in page


def test_a_table_has_a_row_for_each_run_and_the_columns_asked_for(result, tmp_path):
    store.write(tmp_path, result, "<html>")
    answer = call(tmp_path, "--columns", ",".join(COLUMNS), "--format", "tex,md,csv")
    assert answer.exit_code == 0, answer.exception
    csv = pd.read_csv(tmp_path / "table.csv", index_col="label")
    assert csv.columns.tolist() == COLUMNS
    for run in result.runs:
        assert csv.loc[run.label, "ttft_s.p50"] == run.summary["ttft_s"]["p50"]
    first = result.runs[0]
    median = f"{first.summary['ttft_s']['p50']:.4g}"
    tex = (tmp_path / "table.tex").read_text().splitlines()
    assert tex[0] == r"\begin{tabular}{lrrr}"
    assert r"ttft\_s.p50" in tex[2]
    assert tex[4].startswith(f"{first.label} & {median} & ")
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert len(lines) == 2 + len(result.runs)
    assert lines[2].startswith(f"| {first.label} | {median} | ")


def test_labels_are_escaped_in_every_table_format(result):
    run = result.runs[0]
    label = "=1+1 & <b>|"
    named = type(run)(label, run.kind, replace(run.summary, label=label), run.tables)
    table = table_of(Result(result.scenario, (named,)), COLUMNS)
    assert r"=1+1 \& " in TABLE_FORMS["tex"](table).decode()
    assert r"| =1+1 \& \<b\>\| |" in TABLE_FORMS["md"](table).decode()
    read = pd.read_csv(io.BytesIO(TABLE_FORMS["csv"](table)))
    assert read["label"].tolist() == [f"'{label}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "ttft.p50"], "did you mean ttft_s.p50"),
        (["--columns", "ttft_s.p50", "--format", "html"], "one of tex, md, csv"),
        (["--figure", "ttff"], "did you mean 'ttft'"),
        (["--figure", "ttft", "--format", "gif"], "one of svg, png, pdf, html, json"),
        (["--figure", "ttft", "--columns", "ttft_s.p50"], "figures and a table at once"),
    ],
)
def test_wrong_figures_columns_and_formats_are_refused(result, tmp_path, words, message):
    store.write(tmp_path, result, "<html>")
    before = sorted(tmp_path.iterdir())
    answer = call(tmp_path, *words)
    assert isinstance(answer.exception, InputError)
    assert message in str(answer.exception)
    assert sorted(tmp_path.iterdir()) == before


def test_figures_of_two_results_are_written_to_one_folder(result, tmp_path):
    for name in "ab":
        store.write(tmp_path / name, result, "<html>")
    out = tmp_path / "all"
    answer = call(tmp_path / "a", tmp_path / "b", "--figure", "ttft", "--format", "json",
                  "--out", out)  # fmt: skip
    assert answer.exit_code == 0, answer.exception
    assert sorted(path.name for path in out.iterdir()) == ["a.ttft.json", "b.ttft.json"]
    assert json.loads((out / "a.ttft.json").read_text())["data"]
