"""An observed run as a folder of the form that `kvsim validate run` reads.

meta.json       engine, device and settings         stream.jsonl    what prompts share
requests.csv    when each came and was answered     timeseries.csv  the engine's log, tick by tick
steps.csv       every step                          samples.jsonl   the steps, for calibrate fit
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kvsim.backend.serve.engine import Observation
from kvsim.observed.content import BlockIds, runs_text
from kvsim.observed.steps import ObservedStep
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, ceil_div, ps_from_seconds, seconds_from_ps
from kvsim.results.store import replace_files
from kvsim.sequence import Sequence

REQUEST_COLUMNS = (
    *("id", "arrival_s", "prompt_tokens", "output_tokens", "scheduled_s", "first_token_s"),
    *("last_token_s", "priority", "max_tokens", "prompt_runs", "output_start"),
)
TICK_COLUMNS = ("t", "running", "waiting", "kv_cache_pct")


def write_observation(folder: Path, observation: Observation, meta: Mapping[str, Any]) -> None:
    """Write the six files, whole or not at all. meta: as `observed_meta` makes it.

    InputError where nothing was served, or the folder cannot be written.
    """
    recorder = observation.recorder
    if not recorder.finished:
        refusals = [str(reason) for _, _, reason in recorder.rejected]
        raise InputError("no request was served", where="workload", value=refusals[:1] or None)
    origin_ps = recorder.first_arrival_ps
    finished = _in_order(observation)
    replace_files(
        folder,
        {
            "meta.json": _text([json.dumps(meta, indent=1, ensure_ascii=False)]),
            "requests.csv": _csv(REQUEST_COLUMNS, _requests(finished, origin_ps)),
            "stream.jsonl": _text(_stream(finished, origin_ps, int(meta["block_size"]))),
            "timeseries.csv": _csv(
                TICK_COLUMNS, _ticks(observation, origin_ps, float(meta["tick_seconds"]))
            ),
            "steps.csv": _csv(
                tuple(ObservedStep.model_fields),
                (list(step.model_dump().values()) for step in observation.steps),
            ),
            "samples.jsonl": _text(_samples(observation)),
        },
    )


Finished = tuple[Sequence, int]


def _in_order(observation: Observation) -> list[Finished]:
    """Who finished, with the time of it, in the order in which the requests came."""
    recorder = observation.recorder
    by_id = {
        seq.id: (seq, end_ps)
        for seq, end_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
    }
    return [by_id[request_id] for request_id in observation.arrived]


def _requests(finished: list[Finished], origin_ps: int) -> Iterator[list[object]]:
    def seconds(ps: int) -> str:
        return f"{seconds_from_ps(ps - origin_ps):.9f}"

    for seq, end_ps in finished:
        request = seq.request
        yield [
            request.id,
            seconds(seq.arrival_ps),
            request.prompt_tokens,
            request.output_tokens,
            seconds(seq.first_scheduled_ps),
            seconds(seq.first_token_ps),
            seconds(end_ps),
            request.priority,
            request.max_tokens,
            None if request.prompt_runs is None else runs_text(request.prompt_runs),
            request.output_start,
        ]


def _stream(finished: list[Finished], origin_ps: int, block_size: int) -> Iterator[str]:
    ids = BlockIds(block_size)
    for seq, _ in finished:
        request = seq.request
        row: dict[str, object] = {
            "timestamp": (seq.arrival_ps - origin_ps) / PS_PER_MS,
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
        }
        blocks = ids.of(request)
        if blocks is not None:
            row["hash_ids"] = blocks
        yield json.dumps(row)


def _ticks(observation: Observation, origin_ps: int, tick_seconds: float) -> Iterator[list[object]]:
    """At each tick the last record before it; from the first record on, until all is over."""
    records, at = observation.records, 0
    tick_ps = ps_from_seconds(tick_seconds)
    first, last = (
        ceil_div(record.time_ps - origin_ps + 1, tick_ps) for record in (records[0], records[-1])
    )
    for tick in range(first, last + 1):
        while at + 1 < len(records) and records[at + 1].time_ps - origin_ps < tick * tick_ps:
            at += 1
        record = records[at]
        usage = f"{100 * record.kv_cache_usage:.6f}"
        yield [tick * tick_seconds, record.running, record.waiting, usage]


def _samples(observation: Observation) -> Iterator[str]:
    for step, shape in zip(observation.steps, observation.shapes, strict=True):
        yield json.dumps(
            {
                "chunks": [list(chunk) for chunk in shape.chunks],
                "decode_seqs": shape.num_decode,
                "decode_context_tokens": shape.context_tokens,
                "decode_context_max": shape.longest_context_tokens,
                "seconds": step.end_s - step.start_s,
                "source": "observed",
            }
        )


def _csv(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Callable[[Path], object]:
    def save(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    return save


def _text(lines: Iterable[str]) -> Callable[[Path], object]:
    text = "".join(f"{line}\n" for line in lines)
    return lambda path: path.write_text(text, encoding="utf-8", newline="\n")
