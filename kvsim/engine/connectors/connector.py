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
    and the step waits for the load. With 0 tokens nothing is loaded.
    """

    tokens: int = 0
    waits: bool = False


NO_MATCH = RemoteMatch()


class Report(NamedTuple):
    """Copies that have ended, as found by one poll.

    loaded: sequences with a load that succeeded. failed: sequences with a load that failed. sent:
    finished sequences with blocks that the connector held for transfer and has released now. jobs:
    numbers of further copies. parts: in a report of several connectors, the report of each, in
    their order.
    """

    loaded: tuple[Sequence, ...] = ()
    failed: tuple[Sequence, ...] = ()
    sent: tuple[Sequence, ...] = ()
    jobs: tuple[int, ...] = ()
    parts: "tuple[Report, ...]" = ()


NOTHING = Report()


class Decided(NamedTuple):
    """A scheduled step, the argument of `scheduled`.

    plan: its chunks, admissions and preemptions. running: all running sequences, in vLLM's order.
    stepping: the running sequences that compute in this step, in that order. loading: sequences
    with a load that starts in this step. admitted: sequences admitted in this step.
    """

    plan: Plan
    running: tuple[Sequence, ...]
    stepping: tuple[Sequence, ...]
    loading: tuple[Sequence, ...]
    admitted: tuple[Sequence, ...]


class DeviceBlocks(Protocol):
    """Answers of the scheduler to a connector's questions about the device's blocks."""

    def blocks_of(self, seq: Sequence) -> list[list[int]]:
        """Block ids of a sequence for each layer group, from position `skipped` on. Ids start
        at 1.
        """
        ...

    def held_blocks(self, seq: Sequence) -> list[int]:
        """Number of blocks that a sequence holds in each layer group."""
        ...

    def skipped_blocks(self, seq: Sequence) -> list[int]:
        """For each layer group, number of leading positions of the block table without a block, as
        the sliding window has left them.
        """
        ...

    def junction_tokens(self, seq: Sequence) -> int:
        """The shared-prefix boundary of a sequence: number of tokens after which other prompts
        diverged; 0: none.
        """
        ...

    def take_named_states(self) -> dict[Sequence, list[NamedState]]:
        """Recurrent states that entered the prefix cache since the last call, by sequence."""
        ...

    def held_before(self, seq: Sequence) -> list[int] | None:
        """Number of blocks in each layer group before the step being scheduled; None: exactly
        ceil(tokens / block_size).
        """
        ...

    def computed_tokens(self, seq: Sequence) -> int:
        """Slots of a sequence, including those of the step being scheduled and all its drafts."""
        ...

    def known_tokens(self, seq: Sequence) -> int:
        """Number of tokens of a sequence that the scheduler has: prompt and outputs processed so
        far.
        """
        ...

    def steps_below(self, seq: Sequence, tokens: int) -> int:
        """Number of further decode steps that are scheduled while the scheduler has fewer than
        `tokens` token ids of a running sequence.
        """
        ...

    def returned_tokens(self, seq: Sequence) -> int:
        """Slots of a sequence before the step being scheduled, without those of outputs in
        flight.
        """
        ...

    def keys_of(self, seq: Sequence, start: int, end: int, group: int) -> list[int]:
        """Cache keys (block hashes) of the blocks `start` to `end` - 1 of a sequence. This method
        and the next five are those of `HoldingPromise`.
        """
        ...

    def named_blocks(
        self, seq: Sequence, start: int, end: int, group: int
    ) -> list[tuple[int, HeldBlock] | None]: ...

    def named_block(self, number: int) -> tuple[int, HeldBlock] | None: ...

    def still_free(self, block: FreeBlock) -> FreeBlock | None: ...

    def free_blocks(self, after: FreeBlock | None, most: int) -> list[FreeBlock]: ...

    def hold(self, blocks: list[HeldBlock]) -> None: ...

    def let_go(self, blocks: list[HeldBlock]) -> None: ...


class StageCopies(Protocol):
    """The worker half of a connector, with one worker for each stage of a pipeline."""

    def launch_on(self, stage: int, now_ps: int, compute_ps: int) -> int:
        """`Connector.launch` on one stage: submit the copies that precede a step."""
        ...

    def launched_on(self, stage: int, end_ps: int) -> None:
        """`Connector.launched` on one stage: submit the copies that follow a step."""
        ...

    def poll_stages(self, times_ps: list[int]) -> Report:
        """`Connector.poll` on each stage i at times_ps[i]; returns copies that all stages have
        reported by now.
        """
        ...


class Connector(ABC):
    """One connector of one engine. device: set by `attach` before anything runs.

    connects: False for NO_CONNECTOR alone. hits_may_diverge: its loads bring recurrent states
    too, so the tokens after all hits of full attention suffice. loads: it loads KV into this
    engine, so with two steps in flight blocks that one of them may write are not freed.
    recomputes_failed: a sequence is recomputed after a failed load (kv_load_failure_policy
    "recompute"); else it ends with an error ("fail"). journal: receives events to compare with
    a recording; None: events are not recorded. idle_ps: how long the engine sleeps after an
    iteration without tokens while copies are in flight. poll_ps: time from the launch of a step
    to its poll, in which the engine is busy. empty_poll_ps: this time in an iteration without
    tokens, which launches nothing. circles: livelock, as without requests the connector would
    copy forever. hears: it receives messages from other engines, even while a launch waits for
    copies. stage_copies: the worker half of each pipeline stage; None: it supports one stage
    only.
    """

    connects: bool = True
    loads: bool = True
    hits_may_diverge: bool = False
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
        """Write events into `journal` from now on."""
        self.journal = journal

    def attach(self, device: DeviceBlocks) -> None:
        """Set the scheduler's answers about the device."""
        self.device = device

    def on_news(self, woken: Callable[[], None]) -> None:
        """Set `woken`, to be called when a message or a copy arrives that a poll may find."""
        self.woken = woken

    # --- the scheduler half ---------------------------------------------------------------------

    def take_storage_tokens(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> int:
        """Number of tokens of an allocated match that were read for `seq` from the tier after host
        memory.

        The call forgets them.
        """
        return 0

    def begin(self, now_ps: int) -> None:
        """Called when a schedule() begins at now_ps."""
        return

    @abstractmethod
    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        """Look up the tokens of a waiting sequence after its first `device_tokens` outside the
        device.

        None: the lookup is pending, so this step skips the sequence and a later one asks again.
        """

    @abstractmethod
    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        """`seq` got its blocks after `matched` answered `match`: to load, or, with an empty match,
        to compute.
        """

    @abstractmethod
    def scheduled(self, step: Decided) -> None:
        """Called after each schedule(), with empty steps too."""

    def finished(self, seq: Sequence) -> bool:
        """`seq` has its last token and still holds its blocks.

        True: the blocks are held for transfer until a report has the sequence in `sent`.
        """
        return False

    @abstractmethod
    def returned(self, report: Report, now_ps: int) -> None:
        """Process `report`, which was polled in a step; the step's output is processed at
        now_ps.
        """

    def quiet_steps(self, step: Decided, limit: int) -> int:
        """Number of further decode steps like this one, at most `limit`, that change nothing of the
        connector.

        Called only while the connector is not `busy` and no sequence waits.
        """
        return 0

    def totals(self) -> tuple[TierTotals, ...]:
        """Totals of the connector's tiers so far, the nearest first."""
        return ()

    def close(self, now_ps: int) -> None:
        """Called when the engine dies. Tiers that it shares with other replicas keep their
        content.
        """
        return

    # --- the worker half ------------------------------------------------------------------------

    @abstractmethod
    def launch(self, now_ps: int, compute_ps: int) -> int:
        """Submit copies that precede the step scheduled last; returns when the step may be
        launched.

        compute_ps: end of the compute launched before it. The result is now_ps or later.
        """

    @abstractmethod
    def launched(self, now_ps: int, end_ps: int) -> None:
        """Submit copies that follow the step, which was launched at now_ps and computes until
        end_ps.
        """

    @abstractmethod
    def poll(self, now_ps: int) -> Report:
        """Return the copies that have ended by now_ps and were in no report yet."""

    def quiet_until(self, now_ps: int) -> int:
        """Earliest time at which a poll or a schedule() of an idle engine may find something new.

        `woken` is called if that time changes. now_ps: the next poll may find something.
        """
        return now_ps

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether the engine must keep stepping for the connector: copies are in flight, or a
        finished sequence has not been processed.
        """


class NoConnector(Connector):
    """Does nothing: every lookup misses, and nothing is stored."""

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
