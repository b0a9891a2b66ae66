"""The options of SGLang's scheduler under prefill-decode disaggregation."""

from typing import Self

from pydantic import Field, model_validator

from kvsim.engine.policies.queue import WaitingQueue
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.options import Sglang, hicache_over
from kvsim.engine.schedulers.sglang.parts import NO_HICACHE, EngineSide, HicachePart
from kvsim.engine.schedulers.sglang.queue import SglangQueue
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.schedulers.sglang_pd.decode import DecodeSide
from kvsim.engine.schedulers.sglang_pd.prefill import PrefillSide
from kvsim.engine.schedulers.sglang_pd.queue import DecodeQueue
from kvsim.memory.allocator import Allocator
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.errors import InputError


def _check_side(options: Sglang) -> None:
    """Raise ValueError for options without effect on a side.

    No batch mixes prompts with decoding, and every pass reads all messages that have arrived.
    """
    if options.enable_mixed_chunk:
        raise ValueError("enable_mixed_chunk changes nothing between prefill and decode engines")
    if options.scheduler_recv_interval != 1:
        raise ValueError("scheduler_recv_interval is 1 of prefill and decode engines")


def _pages(allocator: Allocator) -> RadixAllocator:
    if isinstance(allocator, RadixAllocator):
        return allocator
    raise InputError(
        "SGLang sends pages of its radix cache from one engine to another",
        where="allocator.kind",
        remedy='kind = "radix"',
    )


def _scheduler(
    options: Sglang,
    pages: RadixAllocator,
    max_model_len: int,
    waiting: WaitingQueue,
    prompts: SglangQueue,
    side: PrefillSide | DecodeSide,
    hicache: HicachePart = NO_HICACHE,
) -> SglangScheduler:
    """The scheduler of one side. waiting: all waiting requests. prompts: those of them to compute
    on this engine.
    """
    scheduler = options.over(pages, max_model_len, waiting, prompts, side, hicache)
    side.attach(scheduler)
    return scheduler


class SglangPrefill(Sglang):
    """SGLang 0.5.23 with --disaggregation-mode prefill."""

    @model_validator(mode="after")
    def _is_of_a_side(self) -> Self:
        _check_side(self)
        return self

    def build(self, allocator: Allocator, max_model_len: int) -> SglangScheduler:
        pages = _pages(allocator)
        side = PrefillSide(pages, overlaps=self.depth > 1)
        queue = self.queue(pages, side.bootstrapping)
        hicache = hicache_over(pages)
        return _scheduler(self, pages, max_model_len, queue, queue, side, hicache)


class SglangDecode(Sglang):
    """SGLang 0.5.23 with --disaggregation-mode decode.

    num_reserved_decode_tokens: held back for the outputs of each request, whatever it asks for.
    retraction_host_ratio: tokens of host memory for retracted requests, as a share of the pool
    (--hicache-ratio); a request that finds none ends with an error. None: 0.2, and enough for one
    of the longest. A prefix cache on the decode engine has no such limit.
    """

    num_reserved_decode_tokens: int = Field(512, ge=0)
    retraction_host_ratio: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _is_of_a_side(self) -> Self:
        _check_side(self)
        return self

    def max_in_flight_tokens(self, depth: int) -> int | None:
        return None

    def check_chunks(self, allocator: Allocator) -> None:
        """Accept any chunk size: no prompt is computed on this engine."""

    def build(self, allocator: Allocator, max_model_len: int) -> SglangScheduler:
        pages, queue = _pages(allocator), DecodeQueue()
        hicache = hicache_over(pages)
        side = DecodeSide(
            pages,
            queue,
            reserved_tokens=self.num_reserved_decode_tokens,
            retraction_host_ratio=self.retraction_host_ratio,
            hicache=hicache,
        )
        return _scheduler(self, pages, max_model_len, queue, self.queue(pages), side, hicache)


def side_of(scheduler: Scheduler) -> EngineSide:
    """The disaggregation side of an SGLang scheduler."""
    assert isinstance(scheduler, SglangScheduler)
    return scheduler.side
