"""measured.json of an observed run: the statistics that a benchmark or the server reported.

    {"source": "bench.json", "requests": {"finished": 640}, "output_tokens_per_s": 4194.1,
     "ttft_s": {"mean": ..., "p50": ..., "p90": ..., "p95": ..., "p99": ...}, "tpot_s": {...},
     "kv_usage": {"mean": 0.02, "peak": 0.03}}

The keys are those of a simulated run in summary.json (`kvsim.results.measured`). Statistics that
were not reported are left out.
"""

from pathlib import Path

from kvsim.plumbing.reading.json_text import read_object
from kvsim.results.measured import MeasuredSummary

FILE = "measured.json"


def run_folder(scenario: Path) -> Path:
    """The folder NAME.run, where `kvsim import` puts measurements of the server that NAME.toml
    describes.
    """
    return scenario.with_suffix(".run")


def measured_beside(scenario: Path) -> MeasuredSummary | None:
    """Read the measurements in NAME.run/measured.json for the scenario file NAME.toml; None without
    that file.

    InputError for a measured.json that is damaged.
    """
    path = run_folder(scenario) / FILE
    if scenario.suffix != ".toml" or not path.is_file():
        return None
    return MeasuredSummary.parse(read_object(path), str(path))
