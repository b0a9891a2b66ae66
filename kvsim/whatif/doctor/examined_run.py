"""The run that a doctor examines, with measures of its ledger, queue and prefix cache."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsim.engine.schedulers.llama_server.options import LlamaServer
from kvsim.memory.ledger import CLASSES
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.results.result import Run
from kvsim.results.series import SERIES_COLUMNS
from kvsim.results.summary import RunSummary
from kvsim.scenario import Scenario
from kvsim.scenario.build.context_parallel import BLOCK_SIZE
from kvsim.simulation import Simulation
from kvsim.vllm.grouping import is_uniform
from kvsim.whatif.cache_curve.lru import HitCurve, lru_curve
from kvsim.whatif.cache_curve.order import in_order
from kvsim.whatif.deployments import busiest
from kvsim.whatif.scenario_tables import Table
from kvsim.whatif.slot_watch import SlotWatch
from kvsim.whatif.watch import SUBSTANTIAL, Preempted, QueueWaits, QueueWatch


class ExaminedRun:
    """One allocator of a scenario, simulated once. table, folder: the scenario with only this
    allocator. whole: the simulation of these tables. simulation: of the examined engine and the
    requests sent to it; in a fleet, its busiest replica, `number`. run: its run. slots: observer of
    llama-server's slots.
    """

    def __init__(self, table: Table, folder: Path) -> None:
        self.table, self.folder = table, folder
        self.whole = Simulation(Scenario.from_table(table, folder))
        scenario = self.whole.scenario
        self.allocator = scenario.allocator[0]
        self.scheduler = scenario.scheduler_of(self.allocator)
        self.label = self.whole.labels[0]
        examined, self.watch = busiest(self.whole, self.allocator, self.label, self._watch)
        self.simulation, self.number = examined.simulation, examined.number
        self.run: Run = examined.run
        self.slots = self.watch if isinstance(self.watch, SlotWatch) else None

    def _watch(self) -> QueueWatch:
        if isinstance(self.scheduler, LlamaServer):
            return SlotWatch(self.scheduler, self.whole.layout)
        return QueueWatch(self.scheduler)

    @property
    def summary(self) -> RunSummary:
        """The summary of the run."""
        return self.run.summary

    @property
    def recorder(self) -> Recorder:
        """The engine's records of the run."""
        assert self.run.recorder is not None  # it has just been simulated
        return self.run.recorder

    @property
    def at_once(self) -> bool:
        """Whether all requests that follow no other arrived at one time, as in a batch job."""
        stream = self.simulation.stream
        return len({one.arrival_ps for one in stream.requests if one.after is None}) == 1

    @property
    def num_requests(self) -> int:
        """Number of requests sent to the engine, refused ones included."""
        return len(self.simulation.stream.requests)

    @property
    def too_long(self) -> list[Request]:
        """Number of requests refused because their prompt exceeds max_model_len."""
        longest = self.simulation.max_model_len
        refused = (request for request, *_ in self.recorder.rejected)
        return [r for r in refused if r.prompt_tokens > longest - min(1, r.output_tokens)]

    @property
    def refused_share(self) -> float:
        """The share of the requests that were refused."""
        return self.summary.requests.rejected / max(1, self.num_requests)

    def option(self, part: Options, name: str) -> Any:
        """The value of an option; None if this kind does not have it."""
        return getattr(part, name, None)

    # --- the cache ------------------------------------------------------------------------------

    @property
    def caching(self) -> bool:
        """Whether requests looked prompt tokens up in a prefix cache."""
        return bool(self.summary.prefix_cache.query_tokens)

    @property
    def hit_share(self) -> float:
        """The prefix cache hit rate: share of the looked-up prompt tokens that were hit."""
        return self.summary.prefix_cache.hit_rate or 0.0

    def curve(self, block_tokens: int) -> HitCurve:
        """The LRU hit curve of this stream in blocks of `block_tokens` tokens."""
        if block_tokens not in self._curves:
            came = in_order(self.simulation, self.run)
            self._curves[block_tokens] = lru_curve(came, block_tokens, outputs=True)
        return self._curves[block_tokens]

    @cached_property
    def _curves(self) -> dict[int, HitCurve]:
        return {}

    @property
    def several_tables(self) -> bool:
        """Whether several layer groups have block tables of their own."""
        windows = not self.option(self.allocator, "disable_hybrid_kv_cache_manager")
        uniform = is_uniform(self.simulation.layout, windows=windows)
        return hasattr(self.allocator, "block_size") and not uniform

    @property
    def block_tokens(self) -> int:
        """Smallest number of tokens at which blocks of all layer groups end together; the usual
        block size for an allocator without blocks.
        """
        if self.several_tables and isinstance(self.allocator, Paged):
            return self.allocator.grouping(self.simulation.layout).hit_tokens
        given: int = self.option(self.allocator, "block_size") or BLOCK_SIZE
        return given

    # --- the queue ------------------------------------------------------------------------------

    @cached_property
    def series(self) -> dict[str, NDArray[np.int64]]:
        """Columns of the ledger over time, by SERIES_COLUMNS."""
        rows = np.frombuffer(self.recorder.series, dtype=np.int64)
        return dict(zip(SERIES_COLUMNS, rows.reshape(-1, len(SERIES_COLUMNS)).T, strict=True))

    @property
    def waits(self) -> QueueWaits:
        """The causes of waiting, as shares of the total time that requests spent in the engine."""
        recorder = self.recorder
        return self.watch.waits(recorder.waiting_sum + recorder.running_sum)

    def longest_queue(self) -> tuple[int, float]:
        """The most requests that waited at once, and when, in seconds from the first arrival."""
        most, at_ps = self.watch.longest
        return most, max(0, at_ps - max(self.recorder.first_arrival_ps, 0)) / PS_PER_S

    # --- preemptions ----------------------------------------------------------------------------

    @property
    def recomputed_share(self) -> float:
        """The share of all computed tokens that were recomputed after a preemption."""
        again = self.summary.recomputed_tokens
        done = self.recorder.finished
        once = sum(seq.prompt_tokens - seq.hit_tokens + seq.output_tokens for seq in done)
        return again / (again + once) if again else 0.0

    @property
    def preempted(self) -> tuple[Preempted, ...]:
        """All preemptions of the run, in order."""
        return tuple(self.watch.preempted)

    @property
    def preempted_in_prompt(self) -> int:
        """Preemptions of sequences that had no output yet."""
        return sum(not each.outputs for each in self.preempted)

    @property
    def memory_binds(self) -> bool:
        """Whether a larger pool would help: requests waited for it, were preempted, or were
        refused.
        """
        waits = self.waits
        bound = max(waits.memory + waits.holes, self.recomputed_share)
        return bound >= SUBSTANTIAL or self.summary.requests.rejected > len(self.too_long)

    # --- the pool -------------------------------------------------------------------------------

    def share(self, name: str) -> float:
        """The mean share of the pool in this ledger class."""
        assert name in CLASSES
        return self.summary.memory.time_mean.of(name)

    @property
    def capacity_tokens(self) -> int:
        """Slots of the pool."""
        return self.summary.memory.capacity_tokens
