"""What requests say of their client: prompts that come again, a closed loop, a limit in flight."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.import_samples import write

import kvsim
from kvsim.interchange.imported import Imported, import_sources, write_imported
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import SourceRequest
from kvsim.readers.parsing.client import limit_of, period_of
from kvsim.scenario import Scenario

GIVEN = {"gpu": "h100", "model": "facebook/opt-125m"}
HEAD = "id,send_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n"
Row = tuple[float, int, int, float, float]


def table(folder: Path, rows: Sequence[Row]) -> Path:
    text = "".join(f"r{at},{','.join(map(str, row))}\n" for at, row in enumerate(rows))
    return write(folder / "requests.csv", HEAD + text)


def imported(folder: Path, rows: Sequence[Row], **choices: Any) -> Imported:
    out = folder / "made.toml"
    found = import_sources([str(table(folder, rows))], GIVEN, out, **choices)
    write_imported(found, out)
    return found


def poisson(count: int, rate: float, lengths: Sequence[int]) -> list[Row]:
    rng, at, rows = random.Random(0), 0.0, []
    for index in range(count):
        at += rng.expovariate(rate)
        rows.append((round(at, 6), lengths[index % len(lengths)], 8, 0.1, rng.uniform(0.5, 2.0)))
    return rows


def capped(count: int, rate: float, most: int) -> list[Row]:
    """A client that waits with `most` requests in flight."""
    rng, at, ends, rows = random.Random(0), 0.0, [], []
    for _ in range(count):
        at += rng.expovariate(rate)
        if len(ends) >= most:
            at = max(at, sorted(ends)[-most])
        e2e = round(rng.uniform(0.5, 2.0), 6)
        at = round(at, 6)
        ends.append(at + e2e)
        rows.append((at, rng.randint(10, 500), 8, 0.1, e2e))
    return rows


# --- prompts that come again ------------------------------------------------------------------


def test_import_offers_prompt_repetition_as_an_option(tmp_path: Path) -> None:
    rng = random.Random(7)
    lengths = [rng.randint(20, 400) for _ in range(60)]
    rows = poisson(600, 20.0, lengths)
    found = imported(tmp_path, rows)
    (note,) = (note for note in found.notes if "prompt lengths repeat" in note)
    assert "every 60 requests" in note
    assert "--prompts-repeat 60" in note
    assert (
        kvsim.simulate(Scenario.load(tmp_path / "made.toml"))
        .runs[0]
        .summary.prefix_cache.hit_tokens
        == 0
    )
    again = imported(tmp_path, rows, prompts_repeat=60)
    assert not any("repeat" in note for note in again.notes)
    cache = kvsim.simulate(Scenario.load(tmp_path / "made.toml")).runs[0].summary.prefix_cache
    whole = sum((tokens - 1) // 16 * 16 for tokens in lengths)  # the last token is always computed
    assert cache.hit_tokens == 9 * whole  # of ten rounds all but the first
    assert not any("repeat" in note for note in imported(tmp_path, rows, prompts_repeat=0).notes)


def test_random_or_equal_prompt_lengths_have_no_period() -> None:
    rng = random.Random(1)
    assert period_of([rng.randint(1, 40) for _ in range(5000)]) is None
    assert period_of([500] * 1000) is None  # any order of these looks like one
    assert period_of([500] * 990 + [1, 2] * 5) is None
    assert period_of([]) is None


@given(
    lengths=st.lists(st.integers(1, 10**6), min_size=10, max_size=60, unique=True),
    rounds=st.integers(3, 8),
    others=st.integers(0, 2),
)
def test_period_of_prompt_lengths_is_found_despite_a_few_outliers(
    lengths: list[int], rounds: int, others: int
) -> None:
    found = lengths * rounds
    for at in range(others if len(found) >= 200 else 0):
        found[at * 50 + 3] = 10**7 + at
    period = period_of(found)
    assert period is not None
    assert period.requests == len(lengths)


# --- limits in flight -------------------------------------------------------------------------


def test_requests_of_a_closed_loop_become_closed_loop_arrivals(tmp_path: Path) -> None:
    rows = capped(400, 1e6, 12)
    found = imported(tmp_path, rows)
    arrivals = found.scenario["workload"]["arrivals"]
    assert (arrivals["kind"], arrivals["num_users"]) == ("closed-loop", 12)
    assert any("12 users of a closed loop" in note for note in found.notes)
    run = kvsim.simulate(Scenario.load(tmp_path / "made.toml")).runs[0]
    assert run.memory["num_running"].max() + run.memory["num_waiting"].max() <= 12
    kept = imported(tmp_path, rows, users=0)
    assert "arrivals" not in kept.scenario["workload"]
    fewer = imported(tmp_path, rows, users=3)
    assert fewer.scenario["workload"]["arrivals"]["num_users"] == 3


def test_concurrency_limit_reached_at_times_becomes_max_concurrency(tmp_path: Path) -> None:
    rows = capped(2000, 9.0, 12)
    workload = imported(tmp_path, rows).scenario["workload"]
    assert ("arrivals" in workload, workload["max_concurrency"]) == (False, 12)
    (note,) = (note for note in imported(tmp_path, rows).notes if "in flight" in note)
    assert "12 requests" in note
    assert "--users 12" in note
    memory = kvsim.simulate(Scenario.load(tmp_path / "made.toml")).runs[0].memory
    assert (memory["num_running"] + memory["num_waiting"]).max() <= 12
    assert "max_concurrency" not in imported(tmp_path, rows, users=0).scenario["workload"]


@pytest.mark.parametrize("rate", [4.0, "inf"])
def test_a_benchmark_with_a_rate_and_a_limit_keeps_both(tmp_path: Path, rate: Any) -> None:
    """Means alone, as `vllm bench serve` saves them."""
    result = {
        "date": "20260101-000000", "backend": "vllm", "model_id": "facebook/opt-125m",
        "num_prompts": 50, "request_rate": rate, "burstiness": 1.0, "max_concurrency": 3,
        "duration": 20.0, "request_throughput": 2.5, "completed": 50, "total_input_tokens": 5000,
        "total_output_tokens": 500, "mean_ttft_ms": 10.0, "mean_tpot_ms": 2.0,
    }  # fmt: skip
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result))
    workload = import_sources([str(path)], GIVEN, tmp_path / "made.toml").scenario["workload"]
    if rate == "inf":
        assert workload["arrivals"]["num_users"] == 3
        assert "max_concurrency" not in workload
    else:
        assert workload["arrivals"] == {"kind": "poisson", "rate_per_s": 4.0}
        assert workload["max_concurrency"] == 3


@pytest.mark.parametrize("rate", [1.0, 5.0, 20.0])
def test_requests_of_an_open_loop_give_no_max_concurrency(tmp_path: Path, rate: float) -> None:
    rows = poisson(3000, rate, [50, 60, 70])
    requests = [
        SourceRequest(str(at), round(sent * 1e9), 50, 8, None, round((sent + e2e) * 1e9))
        for at, (sent, _, _, _, e2e) in enumerate(rows)
    ]
    assert limit_of(requests) is None


@pytest.mark.parametrize("choice", [{"users": 4}, {"prompts_repeat": 4}])
def test_prompts_repeat_option_without_requests_is_refused(
    tmp_path: Path, choice: dict[str, int]
) -> None:
    with pytest.raises(InputError, match="no requests are imported"):
        import_sources(["vllm serve facebook/opt-125m"], GIVEN, tmp_path / "x.toml", **choice)


def test_max_num_seqs_followed_by_words_is_imported_as_its_number(tmp_path: Path) -> None:
    text = (
        '{"model": "facebook/opt-125m", "gpu": "H100", "block_size": 16, "max_model_len": 2048, '
        '"max_num_seqs": "256 by default"}'
    )
    found = import_sources([str(write(tmp_path / "s.json", text))], {}, tmp_path / "x.toml")
    assert found.scenario["scheduler"]["max_num_seqs"] == 256
    assert any("is read as 256" in note for note in found.reads[0].description.notes)
    text = text.replace("256 by default", "2x128")
    other = import_sources([str(write(tmp_path / "s.json", text))], {}, tmp_path / "x.toml")
    assert any("left out" in note for note in other.reads[0].description.notes)
