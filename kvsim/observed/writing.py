"""Write an observed run as a folder that `kvsim validate run` reads.

meta.json       engine, device and settings         stream.jsonl    prompt content that is shared
requests.csv    times and lengths of requests       timeseries.csv  the engine's log, per tick
steps.csv       every step                          samples.jsonl   the steps, for calibrate fit
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.observed import logged_steps, measured
from kvsim.observed.content import BlockIds
from kvsim.observed.logged_steps import LoggedStep
from kvsim.observed.observation import Observation
from kvsim.observed.own_meta import ObservedMeta
from kvsim.observed.rows import ObservedRequest, Tick
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.writing import lines_writer, replace_files, text_writer
from kvsim.request import Request
from kvsim.results.measured import MeasuredSummary

MS_PER_S = 1000


def write_observation(folder: Path, observation: Observation, meta: ObservedMeta) -> None:
    """Write the six files, whole or not at all.

    InputError where nothing was served, or the folder cannot be written.
    """
    recorder = observation.recorder
    if not recorder.finished:
        refusals = [str(reason) for _, _, reason in recorder.rejected]
        raise InputError("no request was served", where="workload", value=refusals[:1] or None)
    served = observation.served()
    settings = meta.model_dump(mode="json", exclude_none=True)
    replace_files(
        folder,
        {
            "meta.json": text_writer(json.dumps(settings, indent=1, ensure_ascii=False) + "\n"),
            "requests.csv": csv_writer([row for row, _ in served]),
            "stream.jsonl": lines_writer(_stream(served, meta.block_size)),
            "timeseries.csv": csv_writer(list(observation.ticks(meta.tick_seconds))),
            "steps.csv": csv_writer(observation.steps),
            "samples.jsonl": lines_writer(
                json.dumps(row.model_dump(mode="json", exclude_defaults=True)) + "\n"
                for row in observation.samples()
            ),
        },
    )


class Recording(NamedTuple):
    """The content of an observed run's folder made from another tool's recording. meta.json is
    always written, the other files only if they have content.

    meta is the content of meta.json. served pairs each row of requests.csv with its Request, in
    order of arrival; it is empty where no request has both start and end. ticks are the rows of
    timeseries.csv, figures the content of measured.json, steps the rows of logged_steps.csv.
    """

    meta: Mapping[str, Any]
    served: Sequence[tuple[ObservedRequest, Request]] = ()
    ticks: Sequence[Tick] = ()
    figures: MeasuredSummary | None = None
    steps: Sequence[LoggedStep] = ()


_RECORDED = (
    *("requests.csv", "stream.jsonl", "timeseries.csv"),
    *(measured.FILE, logged_steps.FILE),
)


def write_recording(folder: Path, recording: Recording) -> None:
    """Write the folder of a run that another tool recorded.

    Files of an older recording that this one does not have are removed. InputError if the folder
    cannot be written, or the settings are not those of an engine.
    """
    meta, served = recording.meta, recording.served
    block_size = VllmMeta.parse(meta, str(folder / "meta.json")).block_size
    files = {"meta.json": text_writer(json.dumps(meta, indent=1, ensure_ascii=False) + "\n")}
    if served:
        files["requests.csv"] = csv_writer([row for row, _ in served])
        files["stream.jsonl"] = lines_writer(_stream(served, block_size))
    if recording.ticks:
        files["timeseries.csv"] = csv_writer(recording.ticks)
    if recording.figures is not None:
        text = json.dumps(recording.figures.as_json(), indent=1, ensure_ascii=False) + "\n"
        files[measured.FILE] = text_writer(text)
    if recording.steps:
        files[logged_steps.FILE] = csv_writer(recording.steps)
    replace_files(folder, files)
    for name in _RECORDED:
        if name not in files:
            (folder / name).unlink(missing_ok=True)


def _stream(served: Iterable[tuple[ObservedRequest, Request]], block_size: int) -> Iterator[str]:
    timed = ((row.arrival_s * MS_PER_S, one) for row, one in served)
    return (f"{line}\n" for line in stream_lines(timed, block_size))


def stream_lines(timed: Iterable[tuple[float, Request]], block_size: int) -> Iterator[str]:
    """JSON lines in Mooncake's format for (arrival in ms, request) pairs; without hash_ids where
    the prompt's content is unknown.
    """
    ids = BlockIds(block_size)
    for arrival_ms, request in timed:
        line: dict[str, object] = {
            "timestamp": arrival_ms,
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
        }
        blocks = ids.of(request)
        if blocks is not None:
            line["hash_ids"] = blocks
        yield json.dumps(line)


def csv_writer(rows: Sequence[Options]) -> Callable[[Path], object]:
    """A function that writes these rows (at least one, all of one class) to a CSV file. Columns
    that are empty in all rows are left out.
    """
    tables = [row.model_dump(exclude_none=True) for row in rows]
    filled = set().union(*tables)
    columns = [name for name in type(rows[0]).model_fields if name in filled]

    def save(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(tables)

    return save
