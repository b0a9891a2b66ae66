"""Records of a run of `kvsim observe`, and their conversion to rows of the run's files."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvsim.engine.record import EngineRecord
from kvsim.observed.rows import ObservedRequest, Tick
from kvsim.observed.steps import ObservedStep
from kvsim.plumbing.units import ceil_div, ps_from_seconds, seconds_from_ps
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.step import StepShape
from kvsim.step_time.calibrated.samples import SampleRow

_DIGITS = 9  # of seconds: a file says nanoseconds


@dataclass(slots=True)
class Observation:
    """Everything recorded in one observed run. Times are in ps on the run's clock.

    arrived holds the ids of admitted requests, in order of arrival. recorder has the requests that
    finished and those that were refused. records has one entry of the engine's log per step. shapes
    has the batch shape of each step.
    """

    recorder: Recorder
    arrived: list[str] = field(default_factory=list)
    steps: list[ObservedStep] = field(default_factory=list)
    shapes: list[StepShape] = field(default_factory=list)
    records: list[EngineRecord] = field(default_factory=list)

    def served(self) -> list[tuple[ObservedRequest, Request]]:
        """Finished requests as rows of requests.csv, in order of arrival, each with its Request."""
        recorder = self.recorder
        finished = {
            seq.id: (seq, end_ps)
            for seq, end_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
        }
        rows = []
        for request_id in self.arrived:
            seq, end_ps = finished[request_id]
            request = seq.request
            row = ObservedRequest(
                id=request.id,
                arrival_s=self._seconds(seq.arrival_ps),
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                scheduled_s=self._seconds(seq.first_scheduled_ps),
                first_token_s=self._seconds(seq.first_token_ps),
                last_token_s=self._seconds(end_ps),
                priority=request.priority,
                max_tokens=request.max_tokens,
                cached_tokens=seq.hit_tokens,
                prompt_runs=request.prompt_runs,
                output_start=request.output_start,
            )
            rows.append((row, request))
        return rows

    def ticks(self, tick_seconds: float) -> Iterator[Tick]:
        """Rows of timeseries.csv: every `tick_seconds` the engine's last log record before that
        time, from the first record to the end of the run.
        """
        records, at = self.records, 0
        origin_ps, tick_ps = self.recorder.first_arrival_ps, ps_from_seconds(tick_seconds)
        first, last = (
            ceil_div(record.time_ps - origin_ps + 1, tick_ps)
            for record in (records[0], records[-1])
        )
        for tick in range(first, last + 1):
            while at + 1 < len(records) and records[at + 1].time_ps - origin_ps < tick * tick_ps:
                at += 1
            record = records[at]
            yield Tick(
                t=tick * tick_seconds,
                running=record.running,
                waiting=record.waiting,
                kv_cache_pct=round(100 * record.kv_cache_usage, 6),
            )

    def samples(self) -> Iterator[SampleRow]:
        """The steps as sample rows, the input of `kvsim calibrate fit`."""
        for step, shape in zip(self.steps, self.shapes, strict=True):
            yield SampleRow(
                chunks=shape.chunks,
                decode_seqs=shape.num_decode,
                decode_context_tokens=shape.context_tokens,
                decode_context_max=shape.longest_context_tokens,
                seconds=step.end_s - step.start_s,
                source="observed",
            )

    def _seconds(self, ps: int) -> float:
        return round(seconds_from_ps(ps - self.recorder.first_arrival_ps), _DIGITS)
