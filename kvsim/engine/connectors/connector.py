"""The interface between a KV connector and vLLM's scheduler and engine.

A connector loads KV from outside the device (host memory, a disk, another engine) into blocks of
the device, and stores KV of blocks there. It has two halves, as vLLM's KVConnectorBase_V1 (0.33.0,
distributed/kv_transfer/kv_connector/v1/base.py). The scheduler asks one half in each schedule():

    matched(seq, device_tokens)      the tokens after those cached on the device that can be loaded
    allocated(seq, ...)              the blocks for these tokens are allocated
    scheduled(step)                  the step is decided: copies are made for it
    finished(seq)                    a sequence is done; True: its blocks are held for transfer

The engine drives the other half, the worker, in each step:

    launch(now_ps, compute_ps)       submits copies that precede the step; returns when the step
                                     may be launched
    launched(now_ps, end_ps)         the step computes until end_ps: submits copies that follow it
    poll(now_ps)                     which copies have ended by now_ps
    returned(report, now_ps)         the scheduler half learns of them, with the output of the step

While a sequence loads, its blocks are allocated to it and are not in the device's prefix cache. It
is neither waiting nor running, and cannot be preempted. After the report of its load it waits in a
second queue, which is looked at before the first. After a failed load all blocks are freed;
`recomputes_failed` says whether the sequence is looked up again or ends with an error.

Reports travel with the output of the step in which they were polled. If a copy ends while step k
computes, a busy engine learns of it with the output of step k + 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.totals import TierTotals
from kvsim.engine.plan import Plan
from kvsim.memory.loading import FreeBlock, HeldBlock, NamedState
from kvsim.sequence import Sequence


class RemoteMatch(NamedTuple):
    """Tokens of a sequence that the connector can load, after those cached on the device.

    waits: the sequence waits for its load (WAITING_FOR_REMOTE_KVS); else it is admitted at once,
    and the step waits for the load. Without tokens there is nothing to load.
    """

    tokens: int = 0
    waits: bool = False


NO_MATCH = RemoteMatch()


class Report(NamedTuple):
    """Copies that have ended, as one poll found them.

    loaded: sequences with a load that succeeded. failed: sequences with a load that failed. sent:
    finished sequences with blocks that the connector held for transfer and needs no more. jobs:
    further copies, as the connector numbers them. parts: the reports of several connectors that it
    is put together from, in their order.
    """

    loaded: tuple[Sequence, ...] = ()
    failed: tuple[Sequence, ...] = ()
    sent: tuple[Sequence, ...] = ()
    jobs: tuple[int, ...] = ()
    parts: "tuple[Report, ...]" = ()


NOTHING = Report()


class Decided(NamedTuple):
    """A step as `scheduled` sees it.

    plan: its chunks, admissions and preemptions. running: all running sequences, in vLLM's order.
    stepping: those of them that compute in this step, in that order. loading: sequences with a load
    that starts in this step. admitted: those admitted in it.
    """

    plan: Plan
    running: tuple[Sequence, ...]
    stepping: tuple[Sequence, ...]
    loading: tuple[Sequence, ...]
    admitted: tuple[Sequence, ...]


class DeviceBlocks(Protocol):
    """Questions about the device that a connector may ask; the scheduler answers them."""

    def blocks_of(self, seq: Sequence) -> list[list[int]]:
        """Block ids of a sequence by layer group, from position `skipped` on; ids from 1 on."""
        ...

    def held_blocks(self, seq: Sequence) -> list[int]:
        """Number of blocks that a sequence holds in each layer group."""
        ...

    def skipped_blocks(self, seq: Sequence) -> list[int]:
        """Leading positions of each table that hold no block, because a window left them."""
        ...

    def junction_tokens(self, seq: Sequence) -> int:
        """The shared-prefix boundary of a sequence: tokens after which others diverged from it; 0:
        none.
        """
        ...

    def take_named_states(self) -> dict[Sequence, list[NamedState]]:
        """The recurrent states that got a key since the last call, by sequence."""
        ...

    def held_before(self, seq: Sequence) -> list[int] | None:
        """Blocks by layer group that a sequence had before the step being scheduled; None: as many
        as its tokens fill.
        """
        ...

    def computed_tokens(self, seq: Sequence) -> int:
        """Slots of a sequence, those of the step being scheduled and all its drafts included."""
        ...

    def known_tokens(self, seq: Sequence) -> int:
        """Number of tokens of a sequence that the scheduler has: prompt and returned output."""
        ...

    def steps_below(self, seq: Sequence, tokens: int) -> int:
        """Number of further steps that only decode and are scheduled while fewer than `tokens`
        token ids of a running sequence have returned.
        """
        ...

    def returned_tokens(self, seq: Sequence) -> int:
        """Slots of a sequence before the step being scheduled, without those of outputs that have
        not returned.
        """
        ...

    def keys_of(self, seq: Sequence, start: int, end: int) -> list[int]:
        """See `HoldingPromise`, as the next four."""
        ...

    def named_blocks(
        self, seq: Sequence, start: int, end: int
    ) -> list[tuple[int, HeldBlock] | None]: ...

    def still_free(self, block: FreeBlock) -> FreeBlock | None: ...

    def free_blocks(self, after: FreeBlock | None, most: int) -> list[FreeBlock]: ...

    def hold(self, blocks: list[HeldBlock]) -> None: ...

    def let_go(self, blocks: list[HeldBlock]) -> None: ...


class StageCopies(Protocol):
    """The worker half of a connector on each stage of a pipeline."""

    def launch_on(self, stage: int, now_ps: int, compute_ps: int) -> int:
        """Submit copies before a step as `Connector.launch`, on one stage."""
        ...

    def launched_on(self, stage: int, end_ps: int) -> None:
        """Submit copies after a step as `Connector.launched`, on one stage."""
        ...

    def poll_stages(self, times_ps: list[int]) -> Report:
        """Poll each stage at its own time, as `Connector.poll`: the copies that all have reported
        now.
        """
        ...


class Connector(ABC):
    """One connector of one engine. device: what `attach` gave, before anything runs.

    connects: there is one; not so NO_CONNECTOR. loads: KV comes to this engine: with two steps in
    flight blocks that one of them may write are not freed. recomputes_failed: a sequence is
    recomputed after a failed load (kv_load_failure_policy "recompute"); else it ends with an error
    ("fail"). journal: receives events to compare with a recording; None: they are not recorded.
    idle_ps: how long the engine sleeps after an iteration without tokens while copies are in
    flight. poll_ps: between the launch of a step and its poll, during which the engine is busy.
    empty_poll_ps: the same of an iteration without tokens, which launches nothing. circles: without
    requests its copies would go on for ever. hears: messages of other engines come to it, also
    while a launch waits for copies. stage_copies: the worker half of each pipeline stage; None: of
    one stage alone.
    """

    connects: bool = True
    loads: bool = True
    recomputes_failed: bool = False
    circles: bool = False
    hears: bool = False
    journal: ConnectorJournal | None = None
    device: DeviceBlocks
    stage_copies: StageCopies | None = None
    woken: Callable[[], None] = staticmethod(lambda: None)
    idle_ps: int = 10**9  # vllm/v1/engine/core.py: 1 ms
    poll_ps: int = 0
    empty_poll_ps: int = 0

    def record(self, journal: ConnectorJournal) -> None:
        """Write into `journal` from now on."""
        self.journal = journal

    def attach(self, device: DeviceBlocks) -> None:
        """The scheduler is there, and answers about the device."""
        self.device = device

    def on_news(self, woken: Callable[[], None]) -> None:
        """The engine is there; call `woken` when something comes that a poll may find."""
        self.woken = woken

    # --- the scheduler half ---------------------------------------------------------------------

    def take_storage_tokens(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> int:
        """Tokens of a match with allocated blocks that were read for this sequence from the tier
        after host memory.

        They are forgotten by the call.
        """
        return 0

    def begin(self, now_ps: int) -> None:
        """A schedule() begins at now_ps."""
        return

    @abstractmethod
    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        """Match the tokens after the first `device_tokens` of a waiting sequence outside the
        device.

        None: the lookup is pending, so the sequence is skipped in this step and asked for again.
        """

    @abstractmethod
    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        """A sequence got its blocks after `matched` answered `match`: to load, or, where nothing is
        to be loaded, to compute.
        """

    @abstractmethod
    def scheduled(self, step: Decided) -> None:
        """schedule() has decided a step, an empty one too."""

    def finished(self, seq: Sequence) -> bool:
        """A sequence has its last token and still holds its blocks. True: these stay as they are
        until a report names the sequence in `sent`.
        """
        return False

    @abstractmethod
    def returned(self, report: Report, now_ps: int) -> None:
        """The output of the step returned, at now_ps, in which `report` was polled."""

    def quiet_steps(self, step: Decided, limit: int) -> int:
        """Number of further steps, at most `limit`, that decode as this one and change nothing of
        the connector.

        Asked only while it is not `busy` and nobody waits.
        """
        return 0

    def totals(self) -> tuple[TierTotals, ...]:
        """Totals of the connector's tiers so far, the nearest first."""
        return ()

    def close(self, now_ps: int) -> None:
        """The engine dies now. Tiers that it shares with other replicas keep their content."""
        return

    # --- the worker half ------------------------------------------------------------------------

    @abstractmethod
    def launch(self, now_ps: int, compute_ps: int) -> int:
        """The step decided last is about to be launched; compute that was launched before it ends
        at compute_ps. Returns when it may be launched, at now_ps or later.
        """

    @abstractmethod
    def launched(self, now_ps: int, end_ps: int) -> None:
        """The step was launched at now_ps and computes until end_ps."""

    @abstractmethod
    def poll(self, now_ps: int) -> Report:
        """The copies that have ended by now_ps and no poll has named yet."""

    def quiet_until(self, now_ps: int) -> int:
        """The earliest time at which a poll or a schedule() of an engine that computes nothing may
        find something new; `woken` is called if that changes. now_ps: any poll may.
        """
        return now_ps

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether the engine keeps stepping for the connector alone: copies are in flight, or a
        finished sequence has not been processed.
        """


class NoConnector(Connector):
    """No connector: every lookup misses, and nothing is stored."""

    connects = False
    loads = False

    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        return NO_MATCH

    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        return

    def scheduled(self, step: Decided) -> None:
        return

    def returned(self, report: Report, now_ps: int) -> None:
        return

    def quiet_steps(self, step: Decided, limit: int) -> int:
        return limit

    def launch(self, now_ps: int, compute_ps: int) -> int:
        return now_ps

    def launched(self, now_ps: int, end_ps: int) -> None:
        return

    def poll(self, now_ps: int) -> Report:
        return NOTHING

    @property
    def busy(self) -> bool:
        return False


NO_CONNECTOR = NoConnector()
