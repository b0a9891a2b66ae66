"""The default output of `kvsim run`: the answer, in 24 lines of 80 columns."""

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

import kvsim
from kvsim.report.bottleneck import room, sequences_that_fit
from kvsim.report.brief import print_brief
from kvsim.report.remarks import remarks
from kvsim.report.screen import LINES
from kvsim.results.result import Result

BASE: dict[str, Any] = {
    "model": {"name": "llama-2-7b"},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 16384},
    "scheduler": {"max_num_seqs": 32},
    "workload": {
        "kind": "synthetic",
        "num_requests": 40,
        "arrivals": {"kind": "poisson", "rate_per_s": 20},
        "prompt": {"kind": "uniform", "min_tokens": 50, "max_tokens": 500},
        "output": {"kind": "uniform", "min_tokens": 10, "max_tokens": 300},
    },
}
PAGED = [{"kind": "paged"}]
TEN = [{"kind": "paged", "block_size": 8 * size} for size in range(1, 11)]
CHANGES: dict[str, dict[str, Any]] = {
    "one allocator": {"allocator": PAGED},
    "three allocators": {"allocator": [{"kind": "max-buffer"}, {"kind": "doubling"}, *PAGED]},
    "more allocators than columns": {"allocator": TEN},
    "a fleet": {"allocator": PAGED, "fleet": {"replicas": 2}},
    "prefill and decode replicas": {
        "allocator": PAGED,
        "scheduler": {"kind": "continuous"},
        "disaggregation": {"link_gb_per_s": 50},
    },
}


def printed(result: Result, width: int = 80) -> str:
    file = StringIO()
    print_brief(result, Console(file=file, width=width), "mine.toml")
    return file.getvalue()


@pytest.fixture(scope="module", params=CHANGES)
def result(request: pytest.FixtureRequest) -> Result:
    return kvsim.simulate(BASE | CHANGES[request.param])


def test_brief_output_fits_24_lines_and_ends_with_the_next_command(result: Result) -> None:
    lines = printed(result).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 80
    (start,) = [at for at, line in enumerate(lines) if line.startswith("next: kvsim ")]
    assert start >= len(lines) - 2  # nothing but its own second line follows
    assert any(line.startswith("limit: ") for line in lines)


def test_each_latency_of_a_single_run_has_its_mean_and_quantiles() -> None:
    result = kvsim.simulate(BASE | CHANGES["one allocator"])
    text = printed(result)
    for name in ("TTFT", "TPOT", "ITL", "E2E"):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert len(line.split()) == 7  # the name, and three numbers with their units
    assert "KV pool" in text


def test_brief_output_counts_notes_that_do_not_fit() -> None:
    result = kvsim.simulate(BASE | CHANGES["three allocators"])
    many = {"provenance": {"notes": [f"the remark of number {at}" for at in range(30)]}}
    crowded = Result(result.scenario | many, result.runs)
    text = printed(crowded)
    assert len(text.splitlines()) <= LINES
    left = len(remarks(crowded)) - text.count("note: ")
    assert left > 0
    assert re.search(rf"^{left} (more )?notes: --verbose", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("rate_per_s", "tokens", "words"),
    [
        (0.5, 65536, "limit: none: "),
        (500, 2048, "limit: KV memory"),
    ],
    ids=["ample memory", "a pool too small"],
)
def test_bottleneck_is_memory_only_if_requests_waited_for_it(
    rate_per_s: float, tokens: int, words: str
) -> None:
    arrivals = {"kind": "poisson", "rate_per_s": rate_per_s}
    workload = BASE["workload"] | {"arrivals": arrivals}
    tables = {"memory": {"kv_cache_tokens": tokens}, "workload": workload, "allocator": PAGED}
    assert words in printed(kvsim.simulate(BASE | tables))


def test_sequences_that_fit_equals_the_number_of_maximum_buffers() -> None:
    """Maximum buffers have one size, so the pool holds a fixed number of them."""
    workload = BASE["workload"] | {"num_requests": 12}
    tables = {"allocator": [{"kind": "max-buffer"}], "workload": workload}
    result = kvsim.simulate(BASE | tables | {"memory": {"kv_cache_tokens": 8 * 4096}})
    (run,) = result.runs
    assert sequences_that_fit(run.summary) == pytest.approx(8)
    assert room([run.summary]).startswith("The pool has room for about 8 such sequences")


def test_limit_is_max_num_seqs_if_the_queue_grows_with_free_memory() -> None:
    arrivals = {"kind": "poisson", "rate_per_s": 500}
    tables = {
        "allocator": PAGED,
        "scheduler": {"kind": "continuous", "max_num_seqs": 4},
        "workload": BASE["workload"] | {"arrivals": arrivals},
    }
    assert "limit: max_num_seqs = 4: the queue grows" in printed(kvsim.simulate(BASE | tables))
