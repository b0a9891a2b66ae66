"""The output formats of a report: each accepts any result, and its contents are right."""

import csv
import io
import json
import re
import stat
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
import typer
from support.browser import needs_drawing
from support.each import check_each
from typer.testing import CliRunner

from kvsim.commands.report import report
from kvsim.plumbing.errors import InputError
from kvsim.report import browser
from kvsim.report.formats import FORMS, apng
from kvsim.results import store

APP = typer.Typer()
APP.command()(report)
DRAWN = ("png", "pdf")


def call(*words):
    return CliRunner().invoke(APP, [str(word) for word in words])


@pytest.mark.parametrize("name", [name for name in FORMS if name not in (*DRAWN, "apng")])
def test_every_report_form_accepts_odd_results(name, odd_results):
    check_each(odd_results, lambda odd: check_form(name, odd_results[odd]))


def check_form(name, result):
    made = FORMS.get(name)().make(result)
    text = made.decode()
    words = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"\bnan\b|\bNaN\b|\bNone\b", words)
    assert len(text) > 500


@needs_drawing
@pytest.mark.parametrize(("name", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_report_writes_png_and_pdf(name, begins, traced, tmp_path):
    store.write(tmp_path, traced, "<html>")
    answer = call(tmp_path, "--format", name)
    assert answer.exit_code == 0, answer.exception
    made = (tmp_path / f"report.{name}").read_bytes()
    assert made.startswith(begins)
    assert len(made) > 50_000
    if name == "png":
        width, height = (int.from_bytes(made[at : at + 4], "big") for at in (16, 20))
        assert width == browser.WIDTH_PX
        assert height > 4000  # all of the page, no window of it


def test_png_report_without_a_browser_is_a_one_line_error(tmp_path, result, monkeypatch):
    monkeypatch.setenv(browser.VARIABLE, str(tmp_path / "none"))
    store.write(tmp_path, result, "<html>")
    answer = call(tmp_path, "--format", "md,png")
    assert isinstance(answer.exception, InputError)
    assert "no such browser" in str(answer.exception)
    assert (tmp_path / "report.md").exists()
    assert not (tmp_path / "report.png").exists()


def test_failing_browser_is_a_one_line_error(tmp_path, result, monkeypatch):
    fake = tmp_path / "browser"
    fake.write_text("#!/bin/sh\necho 'no display' >&2\nexit 3\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(browser.VARIABLE, str(fake))
    store.write(tmp_path / "r", result, "<html>")
    for name, words in (("pdf", "wrote nothing"), ("png", "did not draw the page")):
        answer = call(tmp_path / "r", "--format", name)
        assert isinstance(answer.exception, InputError)
        assert words in str(answer.exception)


def test_csv_report_contains_the_summarys_numbers(result):
    rows = list(csv.DictReader(io.StringIO(FORMS.get("csv")().make(result).decode())))
    assert [row["label"] for row in rows] == [run.label for run in result.runs]
    for row, run in zip(rows, result.runs, strict=True):
        assert float(row["ttft_s.p50"]) == run.summary["ttft_s"]["p50"]
        assert float(row["memory.time_mean.used"]) == run.summary["memory"]["time_mean"]["used"]


def test_labels_are_escaped_in_csv_and_markdown(hostile):
    run = hostile.runs[0]
    formula = type(run)("=1+1", run.kind, replace(run.summary, label="=1+1"), run.tables)
    made = FORMS.get("csv")().make(type(hostile)(hostile.scenario, (formula,)))
    assert next(csv.DictReader(io.StringIO(made.decode())))["label"] == "'=1+1"
    words = FORMS.get("md")().make(hostile).decode().partition("## The scenario")[0]
    assert "</script><b>" not in words
    assert r"\</script\>\<b\>" in words


def test_report_command_writes_several_folders_and_forms(tmp_path, result):
    for name in "ab":
        store.write(tmp_path / name, result, "<html>")
    folders = [tmp_path / "a", tmp_path / "b"]
    assert call(*folders, "--format", "md,csv").exit_code == 0
    assert all((folder / f"report.{name}").exists() for folder in folders for name in ("md", "csv"))
    assert call(*folders, "--format", "md", "--out", tmp_path / "all").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["a.md", "b.md"]


def test_invalid_report_form_is_a_one_line_error(tmp_path, result):
    store.write(tmp_path, result, "<html>")
    answer = call(tmp_path, "--format", "docx")
    assert isinstance(answer.exception, InputError)
    assert "docx" in str(answer.exception)
    assert "html" in str(answer.exception)
    twice = call(tmp_path, tmp_path, "--out", tmp_path / "all")
    assert "two folders of the same name" in str(twice.exception)


def test_markdown_report_contains_the_scenario(result):
    import tomllib

    text = FORMS.get("md")().make(result).decode()
    fenced = re.search(r"```toml\n(.*?)\n```", text, re.DOTALL)
    assert json.dumps(tomllib.loads(fenced.group(1))) == json.dumps(result.scenario)


def chunks(made):
    at = 8
    while at < len(made):
        (length,) = struct.unpack(">I", made[at : at + 4])
        name, data = made[at + 4 : at + 8], made[at + 8 : at + 8 + length]
        assert (
            zlib.crc32(name + data)
            == struct.unpack(">I", made[at + 8 + length : at + 12 + length])[0]
        )
        yield name, data
        at += 12 + length


def test_last_frame_of_the_animation_equals_the_address_table(traced):
    made = FORMS.get("apng")().make(traced)
    parts = list(chunks(made))
    assert [name for name, _ in parts[:3]] == [b"IHDR", b"acTL", b"PLTE"]
    assert parts[-1][0] == b"IEND"
    assert sum(name == b"fcTL" for name, _ in parts) == apng.FRAMES
    last = zlib.decompress(next(data for name, data in parts[::-1] if name == b"fdAT")[4:])
    image = np.frombuffer(last, np.uint8).reshape(-1, apng.WIDTH + 1)[:, 1:]
    until = min(int(run.memory["end_ps"].max()) for run in traced.runs) * apng.SHARE
    rng = np.random.default_rng(0)
    for index, run in enumerate(traced.runs):
        stays, capacity = run.table("addresses"), run.summary["memory"]["capacity_bytes"]
        panel = image[index * (apng.PANEL + apng.GAP) :][: apng.PANEL][::-1]
        for _ in range(200):
            column, row = rng.integers(apng.WIDTH), rng.integers(apng.PANEL)
            now, at = (column + 0.5) / apng.WIDTH * until, (row + 0.5) / apng.PANEL * capacity
            there = stays[
                (stays["start_ps"] <= now) & (stays["end_ps"] > now)
                & (stays["address"] <= at) & (stays["address"] + stays["num_bytes"] > at)
            ]  # fmt: skip
            if len(there):
                kept = there["kind"].iloc[0] == "cached"
                owner = int(there["request"].cat.codes.iloc[0]) * 7 % 12
                assert panel[row, column] == 2 + owner + 12 * kept


def test_animation_without_recorded_addresses_is_refused(result):
    with pytest.raises(InputError, match="no run was traced"):
        FORMS.get("apng")().make(result)
