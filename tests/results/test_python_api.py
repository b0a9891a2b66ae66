"""The Python API in a notebook: completion of names, a table of all runs, and a figure."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.report.figures import FIGURES


@pytest.fixture(scope="module")
def result() -> kvsim.Result:
    table = {
        "model": {"name": "opt-125m"},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": [{"kind": "max-buffer"}, {"kind": "paged"}],
        "workload": {
            "kind": "synthetic",
            "num_requests": 30,
            "arrivals": {"kind": "poisson", "rate_per_s": 50},
            "prompt": {"kind": "fixed", "tokens": 100},
            "output": {"kind": "fixed", "tokens": 50},
        },
    }
    return kvsim.simulate(table)


def test_dir_lists_the_api_before_anything_of_it_is_imported() -> None:
    code = "import kvsim; print(*dir(kvsim))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) >= {"simulate", "Scenario", "figure", "progress", "Result"}


def test_result_table_has_a_row_per_run_with_the_summarys_numbers(
    result: kvsim.Result,
) -> None:
    table = result.table()
    assert list(table.index) == ["max-buffer", "paged"]
    paged = result["paged"].summary
    assert table.loc["paged", "ttft_s.p99"] == paged.ttft_s.p99
    assert table.loc["paged", "memory.time_mean.used"] == paged.memory.time_mean.used


def test_api_figure_is_a_plotly_figure_with_a_legend_of_runs(result: kvsim.Result) -> None:
    figure = kvsim.figure(result, "ttft")
    assert {trace.name for trace in figure.data if trace.name} >= {"max-buffer", "paged"}
    assert figure.layout.showlegend


def test_unknown_figure_error_lists_the_known_figures(result: kvsim.Result) -> None:
    with pytest.raises(InputError, match="shares"):
        kvsim.figure(result, "tfft")
    with pytest.raises(InputError, match="nothing to draw"):
        kvsim.figure(result, "tree")  # there is no radix tree
    assert "tree" in FIGURES


def test_api_documentation_lists_every_public_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    found = re.findall(r"auto(?:function|class):: (\w+)", page)
    assert sorted([*found, "__version__"]) == sorted(dir(kvsim))
