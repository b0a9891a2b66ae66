"""Requests and rows that all schedules recorded from vLLM share."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any
from zlib import crc32

from pydantic import Field, model_validator

from evidence.schedule.case import (
    MOST_TOKENS,
    Case,
    CaseRequest,
    Length,
    by_arrival,
    check_of_two_engines,
)
from evidence.schedule.rows import Row
from evidence.schedule.vllm.engine_settings import VllmEngine
from evidence.schedule.vllm.rows import VllmRows
from evidence.schedule.vllm_dp.replay import RanksReplay
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.speculation.acceptance import RecordedAcceptance
from kvsim.request import PromptItem, Request
from kvsim.step_time.form import StepTime
from kvsim.step_time.stages import StageTimes
from kvsim.token_runs import adapter_id, under_adapter, with_items

Accepted = Annotated[int, Field(ge=0, le=1000)]


class VllmRequest(CaseRequest):
    """A recorded request. accept: accepted drafts of each of its verifications; None: those of the
    case. out: 0 for a pooling request. items: multimodal placeholders of the prompt as [start,
    tokens, name of the content]. adapter: name of a LoRA adapter. rank: index of its data-parallel
    rank.
    """

    out: Annotated[int, Field(ge=0, le=MOST_TOKENS)]
    items: tuple[tuple[Annotated[int, Field(ge=0)], Length, str], ...] = ()
    adapter: str | None = None
    accept: tuple[Accepted, ...] | None = Field(None, min_length=1)
    rank: int = Field(0, ge=0)

    def requests(self) -> Iterator[Request]:
        items = tuple(
            PromptItem(start, tokens, crc32(name.encode()) << 20)
            for start, tokens, name in self.items
        )
        adapter = None if self.adapter is None else crc32(self.adapter.encode())
        for request in super().requests():
            runs = with_items(request.prompt_runs or (), items)
            yield request._replace(
                items=items,
                adapter=adapter,
                prompt_runs=under_adapter(runs, adapter),
                output_start=adapter_id(request.output_start or 0, adapter),
            )


class VllmSchedule(Case):
    """A schedule of a vLLM engine, with or without a connector.

    model, serve, gdn_prefill: settings of the served engine, for planning. accept: number of drafts
    that each verification accepts, in order.
    """

    model: dict[str, Any] | None = None
    serve: dict[str, Any] | None = None
    gdn_prefill: str | None = None
    accept: tuple[Accepted, ...] = ()
    engine: VllmEngine
    requests: tuple[VllmRequest, ...]

    @model_validator(mode="after")
    def _drafts_are_judged(self) -> "VllmSchedule":
        judged = all(request.accept is not None for request in self.requests)
        if self.engine.speculative is not None and not self.accept and not judged:
            raise ValueError("an engine that drafts needs accept")
        return self

    @model_validator(mode="after")
    def _ranks_are_there(self) -> "VllmSchedule":
        ranks = self.engine.data_parallel_size
        if any(request.rank >= ranks for request in self.requests):
            raise ValueError("a request's rank must be below engine.data_parallel_size")
        if ranks > 1:
            check_of_two_engines(self.requests)
        return self

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        ranks, forwards = expectation.get("ranks"), expectation.get("forwards")
        if not isinstance(ranks, list) or not isinstance(forwards, list):
            return super().rows_of(expectation)
        rows = [
            {"side": f"rank {number}", **row} for number, rank in enumerate(ranks) for row in rank
        ]
        return rows + [{"side": "forwards", "forward": each} for each in forwards]

    def simulated(self, recorded: list[Row]) -> list[Row]:
        if self.engine.data_parallel_size == 1:
            return super().simulated(recorded)
        timed, _ = by_arrival(self.requests)
        rank_of = {name: request.rank for request in self.requests for name in request.names()}
        ranks = [
            (self.replica_spec(), self.observer(deque(), stall_once=False))
            for _ in range(self.engine.data_parallel_size)
        ]
        sync_steps = self.engine.dp_sync_interval
        return RanksReplay(timed, rank_of, ranks, self.step_time, sync_steps).rows()

    def replica_spec(self) -> ReplicaSpec:
        return self.engine.replica_spec(acceptance(self.accept, self.requests))

    def step_time(self) -> StepTime:
        cost, stages = super().step_time(), self.engine.pipeline_parallel_size
        return StageTimes([cost] * stages, 0, [0] * (stages - 1)) if stages > 1 else cost

    def observer(self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool) -> VllmRows:
        by_group = self.engine.as_served and len(self.engine.kv_groups) > 1
        return VllmRows(
            by_step,
            stall_once=stall_once,
            by_group=by_group,
            encodes=self.engine.encoder_cache_size is not None,
        )


def acceptance(accept: tuple[int, ...], requests: Iterable[VllmRequest]) -> RecordedAcceptance:
    """The accepted drafts of each verification. accept: for all requests without a list of their
    own.
    """
    own = {
        name: request.accept
        for request in requests
        for name in request.names()
        if request.accept is not None
    }
    return RecordedAcceptance(accept, own)
