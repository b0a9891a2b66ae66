"""`kvsim validate points` on disaggregated rows, with labels for each kind of server."""

import csv

import pytest

from evidence.points.errors import grouped
from evidence.points.outcome import simulate_points
from evidence.points.repeats import repeats
from evidence.points.rows import read_points
from evidence.points.scenario import prepare
from kvsim.scenario import Scenario
from kvsim.simulation import simulate

APART = {
    "id": "one",
    "silicon_data_source": "/a.csv; silicon_concurrency=6",
    "backend": "vllm",
    "backend_version": "0.19.0",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h100_sxm",
    "precision": "bf16",
    "mode": "disagg",
    "isl": "256",
    "osl": "32",
    "batch_size": "",
    "tp_size": "",
    "prefill_num_workers": "2",
    "prefill_tp_size": "1",
    "prefill_moe_tp_size": "0",
    "decode_num_workers": "1",
    "decode_tp_size": "2",
    "decode_batch_size": "8",
    "silicon_ttft_ms": "30",
    "silicon_tpot_ms": "7.5",
}
SGLANG = {"backend": "sglang", "backend_version": "0.5.9"}


def read(tmp_path, *rows):
    path = tmp_path / "points.csv"
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return read_points(path)


@pytest.mark.parametrize("engine", [{}, SGLANG])
def test_disaggregated_point_has_a_split_per_kind_and_all_clients(tmp_path, engine):
    (point,) = read(tmp_path, APART | engine)
    made = prepare(point, "roofline").table
    assert made["workload"]["arrivals"]["num_users"] == 6
    apart = Scenario.from_table(made).disaggregation
    assert apart is not None
    assert (apart.prefill.replicas, apart.decode.replicas) == (2, 1)
    decode, prefill = simulate(made).runs
    assert decode.summary.requests.finished == 60
    tokens = [run.summary.memory.capacity_tokens for run in (prefill, decode)]
    assert tokens[1] > tokens[0] / 2 * 1.9  # two GPUs hold more than one of the two others


def test_disaggregated_point_reports_the_whole_deployments_latencies(tmp_path):
    (point,) = read(tmp_path, APART)
    (outcome,) = simulate_points([point], "roofline", jobs=1)
    decode = simulate(prepare(point, "roofline").table).runs[0].summary
    front_ms = prepare(point, "roofline").front_end_ms
    assert outcome.simulated == (
        pytest.approx((decode.ttft_s.mean or 0) * 1e3 + front_ms),
        pytest.approx((decode.tpot_s.mean or 0) * 1e3),
    )
    (group,) = grouped([outcome], "split")
    assert group.group == "2 of TP 1 + 1 of TP 2" == outcome.as_row()["split"]


def test_clients_per_decode_server_are_multiplied_by_the_servers(tmp_path):
    (point,) = read(tmp_path, APART | {"silicon_data_source": "/a.csv"})
    assert prepare(point, "roofline").table["workload"]["arrivals"]["num_users"] == 8


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prefill_attention_dp_size": "4"}, "prefill_attention_dp_size"),
        ({"decode_pp_size": "2"}, "pp_size"),
        ({"backend": "trtllm"}, "backend"),
    ],
)
def test_point_that_is_not_simulated_has_a_reason(tmp_path, changes, said):
    (outcome,) = simulate_points(read(tmp_path, APART | changes), "roofline", jobs=1)
    assert outcome.simulated is None
    assert said in outcome.refused


def test_point_without_server_counts_is_refused_and_repeats_need_equal_counts(tmp_path):
    alone = {key: cell for key, cell in APART.items() if not key.startswith(("pre", "dec"))}
    (outcome,) = simulate_points(read(tmp_path, alone | {"precision": "bf16"}), "roofline", jobs=1)
    assert "names the servers of both kinds" in outcome.refused
    other = {"decode_num_workers": "3"}
    names = ("one", "two", "three")
    rows = [APART | {"id": name} | (other if name == "three" else {}) for name in names]
    assert [[each.id for each in group] for group in repeats(read(tmp_path, *rows))] == [
        ["one", "two"]
    ]


def test_missing_server_counts_come_from_a_row_of_the_same_measurement(tmp_path):
    short = APART | {"id": "short", "prefill_num_workers": "", "decode_num_workers": ""}
    digits = short | {"id": "digits", "silicon_tpot_ms": "7.500000000001"}
    other = short | {"id": "other", "silicon_tpot_ms": "7.6"}
    rows = {each.id: each for each in read(tmp_path, short, digits, APART, other)}
    for name in ("short", "digits"):
        assert (rows[name].prefill, rows[name].decode) == (rows["one"].prefill, rows["one"].decode)
        assert rows[name].servers == "in another row of the measurement"
    assert rows["one"].servers == "in the row"
    assert str(rows["other"].prefill) == "1 of TP 1"
    assert rows["other"].servers == "not said, one of each"
