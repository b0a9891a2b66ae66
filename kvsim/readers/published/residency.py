"""github.com/inference-sim/residency-vllm: every request of a client with limited concurrency.

runs.json has settings, and `runs` with their file, requests and residency. NAME.csv.gz has id,
scheduled_s, send_s, prompt_tokens, output_tokens, first_token_s, last_token_s, tenant, on one
clock.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kvsim.observed.trial import Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.readers.published.tables import read_json, read_rows, request, served
from kvsim.readers.reader import RecordedRuns, Sniffed

IN_FLIGHT = 256  # the client's, as its README says


class Residency(RecordedRuns):
    """Runs with every request's times; see the module's docstring for the files."""

    what = "runs of github.com/inference-sim/residency-vllm"

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        path = source.path / "runs.json"
        if not path.is_file():
            return False
        table = read_json(path)
        runs = table.get("runs") if isinstance(table, dict) else None
        return isinstance(runs, list) and all(
            isinstance(run, dict) and "residency_token_seconds_total" in run for run in runs
        )

    @classmethod
    def runs(cls, folder: Path) -> Iterator[Trial]:
        path = folder / "runs.json"
        table = read_json(path)
        seqs = str(table.get("max_num_seqs", "")).split(" ")[0]  # "256 by experiment_specs.md"
        settings = table | {
            "max_num_seqs": seqs if seqs.isdecimal() else None,
            "source": "github.com/inference-sim/residency-vllm",
        }
        meta = VllmMeta.parse(settings, str(path))
        for run in table["runs"]:
            yield _trial(folder / str(run.get("file")), meta)


def _trial(path: Path, meta: VllmMeta) -> Trial:
    rows = sorted(read_rows(path), key=lambda row: row.number("scheduled_s"))
    columns = (
        *("scheduled_s", "send_s", "prompt_tokens", "output_tokens"),
        *("first_token_s", "last_token_s"),
    )
    meant, sent, prompt, output, first, last = (
        np.array([row.number(column) for row in rows]) for column in columns
    )
    requests = tuple(
        request(f"r{at}", meant[at], prompt[at], output[at]) for at in range(len(rows))
    )
    return Trial(
        path.name.removesuffix(".csv.gz"),
        meta,
        requests,
        served(sent, first, last, prompt, output, path).figures(),
        max_in_flight=IN_FLIGHT,
        assumed=(*meta.assumptions, "no two prompts begin alike"),
    )
