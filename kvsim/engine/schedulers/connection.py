"""The scheduler's half of a KV connector (vLLM 0.33, v1/core/sched/scheduler.py): loading
sequences, blocks held for transfer, and the metadata of each step.
"""

from collections.abc import Callable

from kvsim.engine.connectors.connector import Decided, Report
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.connected_device import ConnectedDevice
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.in_flight import StepsInFlight
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.two_queues import HoldingQueues
from kvsim.engine.stuck import no_room_for_item
from kvsim.memory.allocator import Refusal
from kvsim.memory.loading import LoadingPromise, LoadsBlocks
from kvsim.plumbing.errors import InvariantError
from kvsim.results.tier_hits import TierHit
from kvsim.sequence import Sequence


class Connection:
    """A scheduler's link to its connector; with NO_CONNECTOR nothing ever waits or loads.

    connects: there is a connector. queues: loading sequences, before the waiting ones. put_off:
    sequences with a pending lookup in the last step. loads: sequences that began to load in that
    step. found: hits of that step, including loads that the step itself waits for. kept: finished
    sequences with blocks held for transfer. defers_frees: blocks of a finished sequence are freed
    only when its last step in flight is processed. num_unready: sequences that hold blocks and lack
    an adapter slot or encoder room. hit_tokens: see `RunTotals`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        parts: ContinuousParts,
        in_flight: StepsInFlight,
        computed_tokens: Callable[[Sequence], int],
    ) -> None:
        connector, allocator = parts.connector, parts.allocator
        self.connector, self.connects = connector, connector.connects
        self._running, self._in_flight = scheduler.running, in_flight
        self._computed_tokens, self._drafts = computed_tokens, parts.drafter.verifies
        overlaps = self.connects and in_flight.counts
        self.defers_frees = overlaps and connector.loads
        self._drops_outputs = overlaps and not connector.loads
        self._unfreed: list[Sequence] = []  # finished, with a step in flight
        self.queues = HoldingQueues(scheduler.waiting)
        self.kept: dict[Sequence, None] = {}
        self.loads: list[Sequence] = []
        self.put_off: list[Sequence] = []
        self.found: list[tuple[Sequence, TierHit]] = []
        self.num_unready = self.hit_tokens = 0
        self._allocator = allocator
        if not self.connects:
            return
        blocks = allocator.loading if isinstance(allocator, LoadsBlocks) else None
        if blocks is None:
            raise InvariantError(f"{type(allocator).__name__} has no blocks to load into")
        self.blocks: LoadingPromise = blocks
        self.device = ConnectedDevice(self.blocks, computed_tokens, scheduler.batch)
        connector.attach(self.device)

    def hit_tokens_of(self, seq: Sequence, cached_tokens: int) -> int:
        """Tokens of a waiting `seq` that are hit on the device, so that the connector does not load
        them. cached_tokens: tokens cached in all layer groups.
        """
        if not self.connector.hits_may_diverge:
            return cached_tokens
        return max(cached_tokens, self.blocks.full_hit_tokens(seq))

    def begin(self) -> None:
        """Begin a schedule() with a connector: reset the lists of the last step."""
        self.loads, self.put_off, self.found = [], [], []
        self.device.decided = None

    def decide(
        self, plan: Plan, running: tuple[Sequence, ...], outputs: dict[Sequence, int]
    ) -> None:
        """Pass the scheduled `plan` to the connector. outputs: its sequences, each with its output
        tokens.
        """
        self.device.scheduled(plan, outputs)
        admitted = tuple(seq for seq, _, _ in plan.admitted)
        self.connector.scheduled(
            Decided(plan, running, tuple(outputs), tuple(self.loads), admitted)
        )

    def returned(self, report: Report, now_ps: int) -> list[Sequence]:
        """Process the connector's report of a step; returns sequences that end with an error as
        their load failed.
        """
        self.connector.returned(report, now_ps)
        for seq in report.loaded:
            self.queues.reported(seq)
        for seq in report.sent:
            del self.kept[seq]
            self._allocator.release(seq)
        failed: list[Sequence] = []
        for seq in report.failed:
            if self.connector.recomputes_failed:
                self.queues.has_failed(seq)
                continue
            self.queues.let_go(seq)
            self._allocator.release(seq)
            failed.append(seq)
        return failed

    # --- sequences that leave -------------------------------------------------------------------

    def preempted(self, victim: Sequence) -> None:
        """Note that the step being scheduled preempts `victim`."""
        if not self.connects:
            return
        self.device.forget(victim)
        last = self._in_flight.newest
        if self._drops_outputs and last is not None and victim in last.finishing:
            last.finishing.remove(victim)  # the KV that goes with its token is lost
            victim.num_outputs -= 1

    def keeps(self, seq: Sequence) -> bool:
        """Whether the blocks of `seq`, which finishes, are not freed yet.

        They are held for transfer, or a step in flight may write them.
        """
        if not self.connects:
            return False
        if self.defers_frees and seq.in_flight is not None:
            self._allocator.checkpoint(seq, seq.final_tokens)
            self.blocks.leave_behind(seq)
            self.connector.finished(seq)
            self._unfreed.append(seq)
            return True
        self.device.forget(seq)
        self.blocks.leave_behind(seq)
        if not self.connector.finished(seq):
            return False
        self.blocks.keep_for_reader(seq)
        self.kept[seq] = None
        return True

    def landed(self, plan: Plan, landed: list[Sequence]) -> None:
        """Process the end of `plan`. landed: its sequences without a later step in flight."""
        if not self.connects:
            return
        for seq in self._unfreed:
            if seq.in_flight is None:
                self.device.forget(seq)
                self.blocks.release_late(seq)
        self._unfreed = [seq for seq in self._unfreed if seq.in_flight is not None]
        if self._in_flight.ahead and not self._drafts:
            self._name_returned(plan, landed)

    def _name_returned(self, plan: Plan, landed: list[Sequence]) -> None:
        """Cache the full blocks of sequences that have a new token and no further step in flight.

        Other sequences, and all without asynchronous scheduling, are cached with their next step.
        """
        newest, staged = self._in_flight.newest, self._in_flight.stages > 1
        for seq in landed:
            if not plan.outputs[seq]:
                continue
            passed_over = newest is not None and seq in newest.passed_over
            if (passed_over or staged) and seq in self._running and seq not in plan.finishing:
                self.blocks.name_returned(seq, self._computed_tokens(seq))

    @property
    def unfreed_blocks(self) -> int:
        """Number of blocks of finished sequences that a step in flight may write."""
        return sum(sum(self.blocks.held_blocks(seq)) for seq in self._unfreed)

    # --- steps ----------------------------------------------------------------------------------

    def check_stuck(self) -> None:
        """Raise InputError if a request is left when no further event can happen."""
        there = [*self._running, *self.queues.in_turn]
        first = there[0] if there else self.queues.head
        if first is not None:
            raise no_room_for_item(first.id)

    def give_up(self, head: Sequence) -> Refusal | None:
        """Refuse `head`, which would wait for ever (`Scheduler.give_up`). vLLM 0.33 starts a load
        only if the pool also has blocks for one verification of drafts.
        """
        if not (self.connects and self._drafts):
            return None
        need, free = self.blocks.blocks_to_load(head)
        if need <= free:
            return None
        self.queues.remove(head)
        return Refusal(
            "vLLM 0.33 waits for ever to load its prompt, with room for one verification of drafts",
            need,
            free,
            "blocks",
            "shorten the request or enlarge the pool",
        )

    def quiet_steps(self, plan: Plan, running: tuple[Sequence, ...], limit: int) -> int:
        """Number of further decode steps like `plan`, at most `limit`, that change nothing of the
        connector.
        """
        if self.connector.busy or self.kept:
            return 0
        return self.connector.quiet_steps(Decided(plan, running, running, (), ()), limit)
