"""`kvsim validate points` on made-up rows: parsing, labels, scenarios, errors and the command."""

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from evidence.points.errors import PointErrors, beside, grouped, totals
from evidence.points.labels import split_of
from evidence.points.outcome import PointOutcome, simulate_points, some_of
from evidence.points.repeats import repeats, spread
from evidence.points.rows import Point, read_points, with_estimates
from evidence.points.scenario import prepare
from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.report.numbers import plural
from kvsim.simulation import simulate

ROW = {
    "id": "one",
    "silicon_data_source": "2026-01-01.csv; silicon_concurrency=4",
    "backend": "vllm",
    "backend_version": "0.19.0",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h100_sxm",
    "precision": "bf16",
    "isl": "256",
    "osl": "32",
    "batch_size": "4",
    "tp_size": "1",
    "silicon_ttft_ms": "30",
    "silicon_tpot_ms": "7.5",
}
SGLANG = {"backend": "sglang", "backend_version": "0.5.9"}
FIT, JUDGE = "row 0", "row 2"  # by the SHA-256 of these names


def table(path, *rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def row(**changes):
    return Point.parse(ROW | changes, "a row")


def read(tmp_path, *rows):
    return read_points(table(tmp_path / "points.csv", *rows))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"isl": "many"}, "points.csv:2.isl"),
        ({"silicon_tpot_ms": "-1"}, "points.csv:2.silicon_tpot_ms"),
        ({"silicon_ttft_ms": ""}, "points.csv:2.silicon_ttft_ms"),
        ({"other_ttft_ms": "soon", "other_tpot_ms": "1"}, "points.csv:2: other_ttft_ms"),
    ],
)
def test_invalid_cell_in_a_points_table_is_named(tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        read(tmp_path, ROW | changes)


def test_points_table_with_missing_column_repeated_id_or_no_row_is_refused(tmp_path):
    with pytest.raises(InputError, match="missing column tp_size"):
        read(tmp_path, {key: value for key, value in ROW.items() if key != "tp_size"})
    with pytest.raises(InputError, match=r"twice.*one.*line 2"):
        read(tmp_path, ROW, ROW)
    path = tmp_path / "none.csv"
    path.write_text(",".join(ROW) + "\n")
    with pytest.raises(InputError, match="no rows"):
        read_points(path)


def test_estimates_of_other_tools_are_shown_with_the_errors(tmp_path):
    (found,) = read(tmp_path, ROW | {"other_ttft_ms": "27", "other_tpot_ms": "9"})
    assert found.estimates == {"other": (27.0, 9.0)}
    more = table(tmp_path / "more.csv", {"id": "one", "third_ttft_ms": "60", "third_tpot_ms": "5"})
    (found,) = with_estimates([found], more)
    outcome = PointOutcome(found, (33.0, 7.5))
    assert outcome.errors("other") == pytest.approx((-0.1, 0.2))
    assert outcome.errors("third") == pytest.approx((1.0, -1 / 3))
    assert [(each.tool, each.ran) for each in beside([outcome])] == [
        *(("kvsim", 1), ("other", 1), ("kvsim", 1), ("third", 1))
    ]
    with pytest.raises(InputError, match="no tool's estimates"):
        with_estimates([found], table(tmp_path / "bare.csv", {"id": "one"}))


@pytest.mark.parametrize(
    ("tp", "copies", "parts", "whole", "expected"),
    [
        (4, 1, 4, 1, "TP 4"),
        (4, 1, 1, 4, "TP 4, EP"),
        (16, 1, 4, 4, "TP 4, EP"),  # GPUs counted twice
        (4, 4, 1, 16, "TP 4, EP"),
        (1, 1, 2, 1, "TP 1 x 2 copies"),  # experts split over two copies of the attention
        (2, 4, 1, 8, "TP 2 x 4 copies, EP"),
    ],
)
def test_point_labels_state_the_parallelism(tp, copies, parts, whole, expected):
    changes = {"tp_size": tp, "attention_dp_size": copies}
    split = split_of(row(**changes, moe_tp_size=parts, moe_ep_size=whole))
    assert str(split) == expected


def test_point_scenario_has_the_benchmarks_clients_lengths_and_flags():
    table = prepare(row(model_path="meta-llama/Llama-3.1-70B", precision="fp8", tp_size=2)).table
    assert table["model"]["name"] == "Llama-3.1-70B-FP8"
    assert table["model"]["kv_cache_dtype"] == "fp8"
    assert table["workload"]["num_requests"] == 40
    assert table["workload"]["prompt"] == {"kind": "uniform", "min_tokens": 204, "max_tokens": 256}
    assert table["scheduler"]["max_num_batched_tokens"] == 8192
    plain = prepare(row(silicon_data_source="/home/a.csv; silicon_concurrency=4")).table
    assert plain["workload"]["prompt"] == {"kind": "fixed", "tokens": 256}
    two = {"tp_size": 1, "moe_tp_size": 2, "silicon_data_source": "/a; silicon_concurrency=8"}
    shared = prepare(row(**two)).table
    assert (shared["workload"]["arrivals"]["num_users"], shared["fleet"]["replicas"]) == (8, 2)


@pytest.mark.parametrize(
    "changes", [{"backend": "other"}, {"mode": "disagg"}, {"pp_size": "2"}, {"precision": "fp3"}]
)
def test_point_that_is_not_simulated_has_a_reason(changes):
    ((outcome),) = simulate_points([row(**changes)], "roofline", jobs=1)
    assert outcome.simulated is None
    (key, value), *_ = changes.items()
    assert key in outcome.refused
    assert value in outcome.refused
    assert totals([outcome]).ran == 0


def test_point_outcomes_equal_their_scenarios_runs():
    rows = [row(), row(id="two", silicon_tpot_ms="15"), row(id="three", **SGLANG)]
    outcomes = simulate_points(rows, "roofline", jobs=1)
    assert [outcome.row for outcome in outcomes] == rows
    run = simulate(prepare(rows[0], "roofline").table).runs[0].summary
    front_ms = prepare(rows[0]).front_end_ms
    assert front_ms > 0
    assert outcomes[0].simulated == (run.ttft_s.mean * 1000 + front_ms, run.tpot_s.mean * 1000)
    assert outcomes[1].simulated == outcomes[0].simulated
    assert outcomes[1].errors()[1] == pytest.approx((outcomes[0].errors()[1] + 1) / 2 - 1)
    assert outcomes[2].simulated is not None
    assert [(each.group, each.rows) for each in grouped(outcomes, "engine")] == [
        *(("vllm", 2), ("sglang", 1))
    ]


@given(st.lists(st.integers(-900, 5000).map(lambda ppt: ppt / 1000), min_size=1, max_size=30))
def test_error_totals_are_over_absolute_values(errors):
    found = PointErrors.of(errors)
    assert found.n == len(errors)
    assert min(map(abs, errors)) <= found.median_abs <= found.p90_abs + 1e-12
    assert found.p90_abs <= max(map(abs, errors))
    assert found.mean_abs == pytest.approx(sum(map(abs, errors)) / len(errors))
    assert min(errors) <= found.bias <= max(errors)


def test_repeats_distinguish_copies_from_second_measurements():
    rows = [
        row(),
        row(id="copy", tp_size=1, moe_tp_size=1),
        row(id="again", silicon_tpot_ms="9"),
        row(id="alone", isl=512),
    ]
    (group,) = repeats(rows)
    assert [each.id for each in group] == ["one", "copy", "again"]
    tpot, ttft = spread([group], "tpot"), spread([group], "ttft")
    assert (tpot.copies, tpot.measured_again, round(tpot.median, 6)) == (1, 1, 0.2)
    assert (ttft.copies, ttft.measured_again, ttft.p90) == (2, 0, 0.0)


def test_sample_of_points_depends_on_the_seed_and_keeps_the_order():
    rows = [row(id=str(index)) for index in range(20)]
    some = some_of(rows, 4, 1)
    assert len(some) == 5
    assert [int(each.id) for each in some] == sorted(int(each.id) for each in some)
    assert some == some_of(rows, 4, 1) != some_of(rows, 4, 2)
    assert some_of(rows, 1, 3) == rows


def run(*arguments):
    return CliRunner().invoke(app, ["validate", "points", *map(str, arguments), "--jobs", "1"])


def test_judging_half_of_points_is_reported_only_in_totals(tmp_path):
    assert [row(id=name).half for name in (FIT, JUDGE)] == ["fit", "judge"]
    path = table(tmp_path / "points.csv", ROW | {"id": FIT}, ROW | {"id": JUDGE})
    answers = {}
    for half in ("fit", "judge", "all"):
        out = tmp_path / half
        result = run(path, "--half", half, "--step-time", "roofline", "--json", "--out", out)
        assert result.exit_code == 0, result.output
        answers[half] = json.loads(result.stdout)
        named = [each["id"] for each in answers[half]["rows"]]
        page = (out / "report.html").read_text()
        assert f"of {plural(answers[half]['all']['rows'], 'point')} could be simulated." in page
        for name in (FIT, JUDGE):
            assert (name in named) == (name in page)
        assert named == {"fit": [FIT], "judge": [], "all": [FIT, JUDGE]}[half]
        assert (out / "points.csv").exists() == bool(named)
    assert answers["judge"]["all"] == answers["fit"]["all"]
    assert answers["all"]["all"]["ran"] == 2


def test_points_command_prints_tables_and_refuses_unknown_filters(tmp_path):
    path = table(tmp_path / "points.csv", ROW, ROW | {"id": "two", "pp_size": "2"})
    result = run(path, "--step-time", "roofline")
    assert result.exit_code == 0, result.output
    for words in ("1 of 2", "By model", "Repeats", "pp_size"):
        assert words in result.stdout
    for wrong in (["--engine", "sglang"], ["--mode", "disagg"], ["--step-time", "none"]):
        error = run(path, *wrong).exception
        assert isinstance(error, InputError)
        assert wrong[0] in str(error)
        assert wrong[1] in str(error)


def test_points_with_many_clients_can_be_left_out(tmp_path):
    path = table(tmp_path / "points.csv", ROW, ROW | {"id": "more", "concurrency": "200"})
    few = [each.clients(1) for each in read_points(path)]
    assert few[0] < 200 == few[1]
    for most, ids in ((few[0], ["one"]), (199, ["one"]), (200, ["one", "more"])):
        result = run(path, "--step-time", "roofline", "--json", "--most-clients", most)
        assert result.exit_code == 0, result.output
        answer = json.loads(result.stdout)
        assert [each["id"] for each in answer["rows"]] == ids
        assert answer["most_clients"] == most
    path = table(tmp_path / "many.csv", ROW | {"id": "more", "concurrency": "200"})
    error = run(path, "--most-clients", 199).exception
    assert isinstance(error, InputError)
    assert "--most-clients" in str(error)


SWEEP = "source_file=/Users/harrli/projects/aic-auto-gap-analysis/data/h200_sxm/x.csv; "


def test_a_sweep_by_the_published_script_repeats_its_prompts_and_mixes_chunks():
    swept = {"silicon_data_source": SWEEP + "silicon_concurrency=4", "system": "h200_sxm"}
    vllm = prepare(row(**swept, backend_version="0.12.0")).table
    (pool,) = vllm["workload"]["prefixes"]
    assert pool["count"] == 100
    assert pool["tokens"] == {"kind": "fixed", "tokens": 255}
    assert vllm["workload"]["num_requests"] == 80
    assert vllm["allocator"][0]["enable_prefix_caching"]
    hits = simulate(vllm).runs[0].summary["prefix_cache"]
    assert hits["hit_tokens"] > 0
    sglang = prepare(row(**swept, **SGLANG)).table
    assert sglang["scheduler"]["enable_mixed_chunk"]
    assert "prefixes" not in sglang["workload"]


def test_attention_dp_point_becomes_a_lockstep_fleet_with_shared_experts():
    labels = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "system": "h200_sxm", "precision": "fp8"}
    point = row(**labels, backend_version="0.12.0", tp_size=2, attention_dp_size=2, moe_tp_size=4)
    made = prepare(point, "kernels").table
    assert (made["fleet"]["replicas"], made["fleet"]["router"]["lockstep"]) == (2, True)
    assert made["model"]["data_parallel_size"] == 2
    assert made["workload"]["arrivals"]["num_users"] == 4
    one, two = simulate(made).runs
    assert one.summary.requests.finished + two.summary.requests.finished == 40
    alone = simulate(
        made | {"fleet": {"replicas": 2}, "model": made["model"] | {"data_parallel_size": 1}}
    )
    held = [each.summary.memory.capacity_tokens for each in (one, alone.runs[0])]
    assert held[0] > 2 * held[1]  # the experts lie on four GPUs instead of two
