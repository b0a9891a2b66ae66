"""Measured figures are stored in the scenario, and printed next to simulated ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.import_samples import bench_result, vllm_command
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.interchange.to_scenario.gauge_window import Client, Placed, inside, place
from kvsim.observed.measured import measured_beside
from kvsim.readers.description import NS_PER_S, GaugeSample
from kvsim.results.measured import MeasuredSummary, compared, differences

DAY_S = 24 * 3600
OCT_10 = 970_000_000  # some second of a year that logs without years are read as
SUMMARY: dict[str, Any] = {
    "backend": "vllm",
    "model_id": "facebook/opt-125m",
    "num_prompts": 40,
    "date": "20001002-120100",
    "request_rate": "inf",
    "max_concurrency": 4,
    "duration": 100.0,
    "completed": 40,
    "total_input_tokens": 4000,
    "total_output_tokens": 800,
    "request_throughput": 0.4,
    **{
        f"{stat}_{name}_ms": 10.0 for stat in ("mean", "median", "p99") for name in ("ttft", "tpot")
    },
    "median_e2el_ms": 200.0,
    "p99_e2el_ms": 240.0,
}


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def imported(folder: Path, result: dict[str, Any], *more: object) -> Path:
    """A scenario of this benchmark and a command line."""
    bench, out = folder / "bench.json", folder / "mine.toml"
    bench.write_text(json.dumps(result))
    invoke("import", vllm_command(folder), bench, *more, "--device", "h100", "--out", out)
    return out


def test_benchmark_statistics_are_written_next_to_the_scenario(tmp_path: Path) -> None:
    measured = measured_beside(imported(tmp_path, SUMMARY))
    assert measured is not None
    assert measured.requests is not None
    assert measured.requests.finished == 40
    assert measured.output_tokens_per_s == 8.0
    assert measured.tpot_s is not None
    assert (measured.tpot_s.mean, measured.tpot_s.p99, measured.tpot_s.p90) == (0.01, 0.01, None)


def test_run_and_doctor_show_measured_and_simulated_numbers(tmp_path: Path) -> None:
    scenario = imported(tmp_path, SUMMARY)
    summary = json.loads(invoke("run", scenario, "--json"))
    run, difference = summary["runs"][0], summary["difference"]["paged"]
    assert summary["measured"]["tpot_s"]["p50"] == 0.01
    assert difference["tpot_s"]["p50"] == pytest.approx(run["tpot_s"]["p50"] / 0.01 - 1)
    assert "p90" not in difference["tpot_s"]
    shown = invoke("run", scenario)
    assert "difference" in shown
    assert "TPOT, p99" in shown
    assert "bench.json" in shown
    page = tmp_path / "out"
    invoke("run", scenario, "--out", page)
    assert "Measured and simulated" in (page / "report.html").read_text()
    found = json.loads(invoke("doctor", scenario, "--repeat", "3", "--json"))
    assert found["measured"]["tpot_s"]["p50"] == 0.01
    assert found["difference"]["tpot_s"]["p50"] == pytest.approx(difference["tpot_s"]["p50"])


def test_measurement_shown_after_set_is_labelled_as_from_before(tmp_path: Path) -> None:
    scenario = imported(tmp_path, SUMMARY)
    summary = json.loads(invoke("run", scenario, "--set", "scheduler.max_num_seqs=8", "--json"))
    assert summary["measured"]["source"].endswith("before scheduler.max_num_seqs=8")


def test_figures_missing_in_a_report_are_computed_from_timed_requests(tmp_path: Path) -> None:
    result = bench_result()
    measured = measured_beside(imported(tmp_path, result))
    assert measured is not None
    assert measured.ttft_s is not None
    assert measured.ttft_s.mean == 0.1
    assert measured.e2e_s is not None
    assert measured.e2e_s.p50 == pytest.approx((0.3 + 0.5) / 2)  # of the two that were answered
    assert measured.e2e_s.p99 == 0.5


def test_spread_of_lengths_is_estimated_from_latency_percentiles(
    tmp_path: Path,
) -> None:
    out = tmp_path / "mine.toml"
    text = out.read_text() if (out := imported(tmp_path, SUMMARY)) else ""
    assert "min_tokens = 80\nmax_tokens = 120" in text  # 240 ms is a fifth above 200 ms
    assert "min_tokens = 16\nmax_tokens = 24" in text


def test_import_without_measurements_deletes_the_measured_file(tmp_path: Path) -> None:
    out = imported(tmp_path, SUMMARY)
    assert measured_beside(out) is not None
    without = {k: v for k, v in bench_result().items() if k not in ("duration", "ttfts", "itls")}
    without = {k: v for k, v in without.items() if not k.endswith("_ms")}
    imported(tmp_path, without)
    assert measured_beside(out) is None


def day(*busy: tuple[int, int, int]) -> list[GaugeSample]:
    """Samples every ten seconds of a day, with (from, to, running) of its busy stretches."""
    return [
        GaugeSample(
            (OCT_10 + at) * NS_PER_S,
            running=next((num for start, end, num in busy if start <= at < end), 0),
            usage=0.25,
        )
        for at in range(0, DAY_S, 10)
    ]


def test_gauges_of_a_day_are_aligned_with_timed_requests_across_time_zones() -> None:
    """Timed requests of another time zone, among other loads of other sizes."""
    samples = day((1000, 1300, 9), (7000, 7200, 4), (50_000, 50_400, 7))
    zero = (OCT_10 + 7000 + 2 * 3600) * NS_PER_S  # two hours west of where the server is
    spans = [(zero + at * NS_PER_S, zero + (at + 50) * NS_PER_S) for at in (0, 50, 100, 150)] * 4
    found = place(samples, Client(zero, 200 * NS_PER_S, spans), zones=True)
    assert isinstance(found, Placed)
    assert found.shift_ns == 2 * 3600 * NS_PER_S
    kept = inside(samples, Client(zero, 200 * NS_PER_S), found.shift_ns)
    assert [sample.running for _, sample in kept[:-2]] == [4] * 20


def test_benchmark_without_timed_requests_is_aligned_by_length_or_date() -> None:
    samples = day((1000, 1300, 9), (7000, 7200, 4), (50_000, 50_200, 4))
    by_length = Client(0, 300 * NS_PER_S, in_flight=9)
    found = place(samples, by_length, zones=False)
    assert isinstance(found, Placed)
    assert {each.running for _, each in inside(samples, by_length, found.shift_ns)} == {0, 9}
    dated = Client(0, 200 * NS_PER_S, in_flight=4, ended_local_ns=(OCT_10 + 50_200) * NS_PER_S)
    found = place(samples, dated, zones=False)
    assert found == Placed(-(OCT_10 + 50_000) * NS_PER_S, pytest.approx(0.0, abs=0.1))


def test_gauges_that_match_the_run_at_no_clock_offset_are_left_out_with_the_reason() -> None:
    samples = day((1000, 1300, 9))
    zero = (OCT_10 + 1000) * NS_PER_S
    other = Client(zero, 200 * NS_PER_S, [(zero, zero + 200 * NS_PER_S)] * 100)
    assert "differ" in str(place(samples, other, zones=True))
    assert "same length" in str(place(samples, Client(0, 9000 * NS_PER_S), zones=False))


def test_measured_differences_use_the_keys_of_a_summary() -> None:
    measured = MeasuredSummary.parse(
        {"source": "x", "makespan_s": 2.0, "waiting_mean": 0.0,
         "ttft_s": {"mean": 1.0, "p50": None, "p90": None, "p95": None, "p99": None}},
        "here",
    )  # fmt: skip
    run = {"makespan_s": 3.0, "waiting_mean": 1.0, "ttft_s": {"mean": 0.5, "p50": 1.0}}
    assert differences(measured, run) == {"makespan_s": 0.5, "ttft_s": {"mean": -0.5}}
    assert [pair.key for pair in compared(measured, run)] == [
        *("makespan_s", "waiting_mean", "ttft_s.mean"),
    ]
