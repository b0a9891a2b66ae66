"""github.com/inference-sim/training: requests of an open-loop client, some of which gave up.

runs.json is a list of runs with settings and `data.shared_prefix`. NAME.csv.gz has id, arrival_s,
prompt_tokens, output_tokens, ttft_s, e2e_s, failed. A client gives up after 300 s; the server then
frees the request's KV, which no simulated server does. So in a run with failures only requests that
were sent and answered before the first failure are compared.

The client (kubernetes-sigs/inference-perf, shared_prefix_datagen.py) draws its prompts once and
sends them cyclically. So where prompt lengths repeat, the prompts repeat too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kvsim.observed.trial import Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.client import period_of
from kvsim.readers.published.tables import read_json, read_rows, request, served
from kvsim.readers.reader import RecordedRuns, Sniffed
from kvsim.request import TokenRuns

PATIENCE_S = 300.0
VERSION = "0.15.0"  # "an instrumented build of February 2026"
_PRIVATE = 10**9  # where token ids begin that nobody shares
_ROOM = 10**6  # between the ids of one prompt and the next


class BlisTraining(RecordedRuns):
    """Runs of an open-loop client with shared prefixes; see the module's docstring for
    the files.
    """

    what = "runs of github.com/inference-sim/training"

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        path = source.path / "runs.json"
        if not path.is_file():
            return False
        runs = read_json(path)
        return isinstance(runs, list) and all(
            isinstance(run, dict) and {"file", "data", "num_gpu_blocks"} <= run.keys()
            for run in runs
        )

    @classmethod
    def runs(cls, folder: Path) -> Iterator[Trial]:
        for run in read_json(folder / "runs.json"):
            yield _trial(folder / str(run["file"]), run)


def _trial(path: Path, run: dict[str, Any]) -> Trial:
    where = str(path.parent / "runs.json")
    settings = {"vllm_version": VERSION, "source": "github.com/inference-sim/training", **run}
    meta = VllmMeta.parse(settings, where)
    try:
        shared = run["data"]["shared_prefix"]
        groups, common = int(shared["num_unique_system_prompts"]), int(shared["system_prompt_len"])
        asked = int(shared["output_len"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("no such data.shared_prefix", where=where, value=error) from None
    if groups < 1 or not 0 <= common <= _ROOM or not 1 <= asked <= _ROOM:
        raise InputError("data.shared_prefix is out of range", where=where, value=shared)
    rows = read_rows(path)
    columns = ("arrival_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s", "failed")
    arrival, prompt, output, ttft, e2e, failed = (
        np.array([row.number(column, empty="0") for row in rows]) for column in columns
    )
    lost = failed > 0
    if lost.all():
        raise InputError("every request failed", where=str(path))
    prompt[lost] = np.median(prompt[~lost])
    if prompt.max() > _ROOM:
        raise InputError("too long a prompt", where=str(path), value=prompt.max(), limit=_ROOM)
    if run.get("ignore_eos"):  # what is short took as long as what is not: its text was counted
        output[:] = asked
    else:
        output[lost] = asked
    until = float((arrival[lost] + PATIENCE_S).min()) if lost.any() else np.inf
    answered = ~lost & (arrival + e2e <= until)
    came = np.flatnonzero(arrival < until)
    counted = np.flatnonzero(answered[came])
    kept = came[counted]
    period = period_of(prompt[~lost].astype(int).tolist())
    distinct = len(rows) if period is None else period.requests
    requests = tuple(
        request(
            *(f"r{at}", arrival[at], prompt[at], output[at]),
            _runs(at % distinct, groups, common, prompt[at]),
        )
        for at in came.tolist()
    )
    figures = served(
        arrival[kept],
        arrival[kept] + ttft[kept],
        arrival[kept] + e2e[kept],
        prompt[kept],
        output[kept],
        path,
    ).figures()
    assumed = [
        f"vllm_version = {VERSION}: a build of February 2026",
        f"which of {groups} system prompts a request has: they take turns",
    ]
    if period is not None:
        assumed.append(f"{period}: and so do the prompts")
    if run.get("ignore_eos"):
        assumed.append(f"all outputs have {asked} tokens, as ignore_eos has it")
    if lost.any():
        assumed.append(f"only what came and was answered in {until:.0f} s: then clients gave up")
    return Trial(
        path.name.removesuffix(".csv.gz"),
        meta,
        requests,
        figures,
        counted=tuple(counted.tolist()),
        assumed=(*meta.assumptions, *assumed),
    )


def _runs(index: int, groups: int, common: int, prompt: float) -> TokenRuns:
    """Token runs of a prompt: one of the shared system prompts, then tokens that no other prompt
    has.
    """
    tokens = max(1, round(prompt))
    shared = min(common, tokens)
    head = ((index % groups) * _ROOM, shared)
    own = (_PRIVATE + index * _ROOM, tokens - shared)
    return (head, own) if own[1] else (head,)
