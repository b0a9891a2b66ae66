"""Every row of schedules recorded from the unmodified schedulers of vLLM and SGLang.

vLLM 0.33.0 and 0.11.2: 01 to 19 cover one rule each. 21 to 40 and 51 to 55 combine rules in small
pools. 41 to 46, 56 and 57 are the smallest cases that a simulator once got wrong. 76 to 84 are over
pipeline stages, the first random case of each kind. 111 to 113 have DFlash drafts, the first three
of seeds 70,000 to 70,119. kvsim once waited for too few tokens in 114, and for too many in 115.

SGLang 0.5.23: S01 to S12 have one setting or load each; R01 to R08 are random, one of each kind.
R06 and R07 are the smallest cases that a simulator once got wrong. Rows have the new-token ratio to
the last bit.

SGLang with two pools: W01 to W08 have windows, M01 to M09 recurrent states. Of the random ones, M10
to M12 have states alone, and L01 to L03 have windows as long as Llama 4's chunks, or a load under
which SGLang ends the last decoding request. M13 to M21 have states alone: of the seeds from 700,000
on, each is the first to show the event in its name. In M22 a limit drops states of a path, which
does not count as an eviction.

P03 and P07 have other schedule policies, XS2 and XS3 pipeline stages.
"""

from math import nextafter
from pathlib import Path

import pytest

from evidence.schedule.case import cases_in, read_expectation
from evidence.schedule.engines import parse_case, read_case
from evidence.schedule.replay import simulate_rows
from evidence.schedule.verdict import compare, validate_case
from kvsim.plumbing.errors import InputError

CASES = sorted((Path(__file__).parent / "schedules").glob("*.json"))
# Schedules of `vllm serve` 0.33.0 from a config.json and flags. From 70 on they are random: one
# with drafts for each kind of layers, and the first of each rule that a simulator got wrong. 102 to
# 107 are over pipeline stages, the first random case of each kind. In 108 kvsim once waited for
# tokens of a victim. 109 to 112 have DFlash drafts, one case for each kind of layers. 120 to 125
# have drafts over stages with several block tables, the first random case of each method. 130 to
# 132 have drafts with images or adapters, 133 has ngram drafts, 134 and 135 have decode context
# parallelism.
SERVED = sorted((Path(__file__).parent / "served").glob("*.json"))
SGLANG = sorted((Path(__file__).parent / "schedules_sglang").glob("*.json"))
# A prefill and a decode engine with a link: of SGLang 0.5.23, and of vLLM 0.33.0 with its
# NixlConnector. D07 to D15 of SGLang are random, the first of each kind: overlap schedule, failed
# transfers, timeouts, full host memory, no memory for the last request. D16 to D18 have a
# hierarchical cache on the prefill engine, XP4 on both engines. D19 has a long handshake under the
# overlap schedule.
PAIRS = sorted((Path(__file__).parent / "sglang_pd").glob("*.json"))
VLLM_PAIRS = sorted((Path(__file__).parent / "vllm_pd").glob("*.json"))
# Data-parallel ranks that step together. vLLM 0.33.0: plain, with drafts, with host memory, and as
# decode engines. SGLang's attention ranks: with one step in flight, and with the overlap schedule.
VLLM_RANKS = sorted((Path(__file__).parent / "vllm_dp").glob("*.json"))
SGLANG_RANKS = sorted((Path(__file__).parent / "sglang_dp").glob("*.json"))
# SGLang 0.5.23 with its hierarchical cache, on a clock that has copies and a storage. C23 and later
# are drawn, each the first to show a corner that a simulator got wrong, and C26 overlap in chunks.
# C28 and later are of seeds 50,000 to 50,249, with a storage: the first three, and each that once
# differed (when retracted requests are looked up, and what goes on while a pass waits for a copy).
# C43 has the first 34 requests of seed 52,016; all 64 end SGLang with an error. In C44 a retracted
# request is found in the storage once more, and the second find counts alone.
HICACHE = sorted((Path(__file__).parent / "schedules_hicache").glob("*.json"))

HYBRIDS = sorted((Path(__file__).parent / "schedules_sglang_hybrid").glob("*.json"))


@pytest.mark.parametrize(
    "path", [*CASES, *SERVED, *SGLANG, *HYBRIDS, *HICACHE], ids=lambda path: path.stem
)
def test_schedule_is_equal_row_for_row(path: Path) -> None:
    case = read_case(path)
    verdict = compare(path.stem, read_expectation(path), simulate_rows(case))
    assert verdict.equal, verdict.text()
    assert verdict.steps >= len(case.requests)


@pytest.mark.parametrize(
    "path", [*PAIRS, *VLLM_PAIRS, *VLLM_RANKS, *SGLANG_RANKS], ids=lambda path: path.stem
)
def test_rows_of_several_engines_equal_the_recording(path: Path) -> None:
    verdict = validate_case(path)
    assert verdict.equal, verdict.text()


def test_pd_schedule_difference_names_the_engine_and_row() -> None:
    case = read_case(PAIRS[0])
    recorded = case.expected(PAIRS[0])
    rows = case.simulated(recorded)
    first = next(index for index, row in enumerate(rows) if row["side"] == "decode")
    rows[first + 3] = {**rows[first + 3], "queues": [0, 0, 0, 9]}
    verdict = compare("pair", recorded, rows)
    assert verdict.first_difference is not None
    assert (verdict.first_difference["side"], verdict.first_difference["step"]) == ("decode", 3)
    assert "row 3 of decode differs in 'queues'" in verdict.text()


def test_every_recorded_case_is_present() -> None:
    kinds = (CASES, SERVED, SGLANG, HYBRIDS, HICACHE, PAIRS, VLLM_PAIRS, VLLM_RANKS, SGLANG_RANKS)
    assert [len(cases) for cases in kinds] == [88, 74, 24, 33, 44, 20, 21, 6, 2]
    for cases in kinds:
        recorded = {path.name.removesuffix(".json") for path in cases}
        beside = {path.name for path in cases[0].parent.glob("*.expected.json.gz")}
        assert beside == {f"{name}.expected.json.gz" for name in recorded}


def test_folder_argument_runs_all_its_cases(tmp_path: Path) -> None:
    assert cases_in(CASES[0].parent) == CASES
    with pytest.raises(InputError, match="no recorded case in this folder"):
        cases_in(tmp_path)


def test_schedule_difference_in_the_last_bit_of_a_ratio_is_detected() -> None:
    path = next(path for path in SGLANG if path.stem == "S11_edges")
    rows = simulate_rows(read_case(path))
    rows[100] = {**rows[100], "ratio": nextafter(rows[100]["ratio"], 1.0)}
    found = compare("ratio", read_expectation(path), rows).first_difference
    assert found is not None
    assert (found["step"], found["field"]) == (100, "ratio")


def test_schedule_case_of_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="num_gpu_blocks, max_total_tokens"):
        parse_case({"name": "x", "engine": {"blocks": 4}}, "x.json")


def test_case_expecting_more_running_requests_than_states_is_refused() -> None:
    """20 states, 3 for each running request."""
    engine = {"kind": "mamba", "max_mamba_cache_size": 20, "mamba_strategy": "no_buffer"}
    case = {
        "name": "few states",
        "engine": {
            "max_total_tokens": 4000,
            "context_length": 2000,
            "overlap": False,
            "max_running_requests": 9,
            "expect_running": 6,
            **engine,
        },
        "cost": {"a": 10, "b": 1, "c": 1},
        "requests": [{"id": "r", "arrival": 0, "prompt_len": 40, "out": 4}],
    }
    assert simulate_rows(parse_case(case, "few states"))
    case["engine"]["expect_running"] = 9  # type: ignore[index]
    with pytest.raises(InputError, match="expect_running"):
        simulate_rows(parse_case(case, "few states"))


def test_case_that_hits_sglangs_truncated_prompt_bug_is_refused() -> None:
    """SGLang 0.5.23 computes 16 of the first prompt's 40 tokens and decodes from there."""
    engine = {"page_size": 4, "chunked_prefill_size": 17, "radix_cache": False, "overlap": False}
    request = {"arrival": 0, "prompt_len": 40, "out": 4}
    case = {
        "name": "two cuts",
        "engine": {"max_total_tokens": 400, "context_length": 200, **engine},
        "cost": {"a": 10, "b": 1, "c": 1},
        "requests": [
            {"id": "stops", **request, "max_tokens": 9},
            {"id": "asks for all", **request, "max_tokens": 4, "ignore_eos": True},
        ],
    }
    with pytest.raises(InputError, match=r"cuts a second prompt.*step 0"):
        simulate_rows(parse_case(case, "two cuts"))
    del case["requests"][1]["ignore_eos"]  # type: ignore[index]
    assert simulate_rows(parse_case(case, "one cut"))
