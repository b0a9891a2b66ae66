"""Admission of waiting sequences (vLLM 0.33, v1/core/sched/scheduler.py): the head of the queue,
and the next, until something does not fit.

A waiting sequence with nothing computed is looked up on the device first and then by the connector.
The connector's hits are loaded in one of two ways. Either the sequence waits for the load in a
separate queue, with all blocks of the hit tokens allocated. Or it is admitted at once, and the step
waits. A sequence with a pending lookup is skipped, and the next ones are tried. A sequence is also
skipped if its adapter has no slot, or the encoder cache has no room for its images. A load needs
neither: both are needed only when its sequence starts.
"""

from kvsim.engine.connectors.connector import RemoteMatch
from kvsim.engine.plan import Cached, Plan
from kvsim.engine.schedulers.chunk_sizes import ChunkSizes
from kvsim.engine.schedulers.connection import Connection
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.in_flight import StepsInFlight
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Demand
from kvsim.results.tier_hits import TierHit
from kvsim.sequence import Sequence


class AdmissionLoop:
    """Admits waiting sequences of one scheduler in each step.

    stopped_at: head of the queue when the last step stopped admitting. num_unstarted: sequences
    that it skipped as their LoRA adapter had no slot. num_unencoded: sequences that it skipped as
    the encoder cache or budget had no room.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        parts: ContinuousParts,
        sizes: ChunkSizes,
        connection: Connection,
        in_flight: StepsInFlight,
    ) -> None:
        self._scheduler, self._sizes = scheduler, sizes
        self._connection, self._in_flight = connection, in_flight
        self._knobs, self._drafts = parts.knobs, parts.drafter.verifies
        self._slots = parts.drafter.input_slots  # that a drafter reads, of each sequence
        self.stopped_at: Sequence | None = None
        self.num_unstarted = self.num_unencoded = 0
        self._prefills = self._runs = False  # what the step computes of running sequences
        self._resumed: set[Sequence] = set()  # in this step, after their loads
        self._too_long: list[Sequence] = []
        self._skipped: list[Sequence] = []

    @property
    def skips(self) -> bool:
        """Whether the last step skipped a sequence for lack of an adapter slot or of encoder
        room.
        """
        return bool(self.num_unstarted or self.num_unencoded)

    def passed_by(self) -> dict[str, int]:
        """Number of waiting sequences that the last step skipped, by the resource they lack.

        Keys: `adapters`, `encoder`, `loads`. Later sequences may not need that resource.
        """
        connection = self._connection
        found = {"encoder": self.num_unencoded, "adapters": self.num_unstarted}
        if connection.connects:
            holding = len(connection.queues.holding) - connection.num_unready
            found["loads"] = holding + len(connection.put_off)
        return found

    def admit(self, plan: Plan, budget: int, threshold: int) -> None:
        """Admit waiting sequences until one does not fit.

        budget: tokens left in the step. threshold: most tokens of one prompt, 0 for no such limit.
        """
        scheduler, connection = self._scheduler, self._connection
        self.num_unstarted = self.num_unencoded = connection.num_unready = 0
        self._prefills = any(chunk.seq in scheduler.prefilling for chunk in plan.chunks)
        self._runs = not plan.empty
        self._too_long, self._skipped = [], []
        left: int | None = budget
        if connection.connects:
            self._resumed = set()
            left = self._resume_loaded(plan, budget, threshold)
        while (
            left is not None
            and left > self._slots
            and len(scheduler.running) < self._knobs.max_num_seqs
        ):
            head = scheduler.waiting.head
            if head is None:
                break
            left = self._try(head, plan, left, threshold)
        self.stopped_at = scheduler.waiting.head
        for seq in self._too_long:
            scheduler.waiting.put_back(seq)  # one by one to the front: in reverse order
        for seq in reversed(self._skipped):
            scheduler.waiting.put_back(seq)

    def _try(self, seq: Sequence, plan: Plan, left: int, threshold: int) -> int | None:
        """Start, load or skip the head of the queue; returns the remaining budget, None if it does
        not fit.
        """
        scheduler, connection = self._scheduler, self._connection
        if not self._may_start(seq):
            self.num_unstarted += seq.request.adapter is not None
            self._skipped.append(scheduler.waiting.pop())
            return left
        cached = scheduler.cached(seq)
        apart_tokens = cached.tokens
        if connection.connects:
            apart_tokens = connection.hit_tokens_of(seq, apart_tokens)
        match = connection.connector.matched(seq, apart_tokens)
        device_tokens = apart_tokens if match is not None and match.tokens else cached.tokens
        if match is None:
            connection.put_off.append(seq)
            self._skipped.append(scheduler.waiting.pop())
            return left
        if match.waits:
            return left if self._start_load(seq, plan, device_tokens, match) else None
        if match.tokens:
            cached = Cached(device_tokens + match.tokens, False)
        new_tokens, drafts = self._first_chunk(seq, cached.tokens, left, threshold)
        if not new_tokens:
            return None
        if new_tokens < 0:
            self._too_long.append(scheduler.waiting.pop())
            return left
        new_tokens = self._sizes.allowed(seq, cached.tokens, new_tokens)
        if not new_tokens:
            self.num_unencoded += 1
            self._skipped.append(scheduler.waiting.pop())
            return left
        fit_tokens = self._fit_tokens(seq, cached.tokens + new_tokens - drafts)
        if not scheduler.admit_first(plan, cached, new_tokens, fit_tokens, drafts):
            return None
        if connection.connects:
            connection.connector.allocated(seq, device_tokens, match)
            if match.tokens:
                self._count_hit(seq, device_tokens, match)
        return left - new_tokens - self._slots

    def _may_start(self, seq: Sequence) -> bool:
        """Whether adapters and steps in flight let a waiting sequence start in this step; if not,
        it is skipped.
        """
        return self._in_flight.may_start(seq) and self._scheduler.limits.may_start(seq)

    def _first_chunk(
        self, seq: Sequence, computed: int, left: int, threshold: int
    ) -> tuple[int, int]:
        """Size of the first chunk of `seq` after `computed` tokens; see `ChunkSizes.first`."""
        sizes, padding = self._sizes, None
        if computed == seq.num_tokens - 1:
            padding = sizes.padding(computed, prefills=self._prefills, runs=self._runs)
        return sizes.first(seq, computed, left - self._slots, threshold, padding)

    def _fit_tokens(self, seq: Sequence, num_tokens: int) -> int:
        """Number of slots that must be free for the sequence to start with num_tokens slots."""
        return max(num_tokens, seq.num_tokens) if self._knobs.fits_whole else num_tokens

    # --- loads ----------------------------------------------------------------------------------

    def _start_load(
        self, seq: Sequence, plan: Plan, device_tokens: int, match: RemoteMatch
    ) -> bool:
        """Allocate all blocks of the hit tokens, and let the head of the queue wait for its load;
        False: they do not fit.
        """
        scheduler, connection = self._scheduler, self._connection
        num_tokens = device_tokens + match.tokens
        fit_tokens = self._fit_tokens(seq, num_tokens)
        demand = Demand(num_tokens, fit_tokens, device_tokens, bool(scheduler.running))
        if not connection.blocks.start_load(seq, demand, self._reserved_blocks(plan)):
            scheduler.limits.declined(seq)
            return False
        scheduler.waiting.pop()
        connection.queues.load(seq, num_tokens)
        connection.loads.append(seq)
        connection.connector.allocated(seq, device_tokens, match)
        self._count_hit(seq, device_tokens, match)
        return True

    def _count_hit(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        """Count the connector's hit of `seq`, which got its blocks.

        The last token of a fully loaded sequence is recomputed, so it is no hit.
        """
        connection, scheduler = self._connection, self._scheduler
        storage_tokens = connection.connector.take_storage_tokens(seq, device_tokens, match)
        hit_tokens = min(match.tokens, seq.num_tokens - 1 - device_tokens)
        hit = TierHit(device_tokens, hit_tokens, min(storage_tokens, hit_tokens))
        connection.found.append((seq, hit))
        if not seq.num_preemptions:
            connection.hit_tokens += hit_tokens
            scheduler.awaited_hit_tokens += hit_tokens if match.waits else 0

    def _resume_loaded(self, plan: Plan, budget: int, threshold: int) -> int | None:
        """Start sequences with finished loads.

        Returns the remaining budget; None if one of them does not fit, so that no later one starts.
        """
        scheduler, connection = self._scheduler, self._connection
        queues, blocks, left = connection.queues, connection.blocks, budget
        if len(queues.holding) == len(queues.loading):
            return left
        for seq in queues.in_turn:
            if left <= self._slots or len(scheduler.running) >= self._knobs.max_num_seqs:
                break
            if seq in queues.loading:
                continue
            if seq in queues.failed:
                more = self._look_up_again(seq, plan, left, threshold)
                if more is None:
                    return None
                left = more
                continue
            if seq in queues.loaded:
                blocks.end_load(seq, queues.loaded[seq])
            computed = min(queues.promote(seq), seq.num_tokens - 1)
            if not self._may_start(seq):
                self.num_unstarted += 1
                connection.num_unready += 1
                continue
            if not computed:
                connection.connector.matched(seq, 0)  # nothing is computed: it is looked up again
            new_tokens, drafts = self._first_chunk(seq, computed, left, threshold)
            if not new_tokens:
                return None
            new_tokens = self._sizes.allowed(seq, computed, new_tokens)
            if not new_tokens:
                self.num_unencoded += 1
                connection.num_unready += 1
                continue
            num_tokens = computed + new_tokens
            fit_tokens = self._fit_tokens(seq, num_tokens - drafts)
            demand = Demand(num_tokens, fit_tokens, computed, bool(scheduler.running))
            if not blocks.resume(seq, demand):
                scheduler.limits.declined(seq)
                return None
            queues.let_go(seq)
            self._resumed.add(seq)
            scheduler.start(seq, plan, computed, new_tokens, drafts)
            left -= new_tokens + self._slots
        return left

    def _look_up_again(self, seq: Sequence, plan: Plan, left: int, threshold: int) -> int | None:
        """Free the blocks of a sequence with a failed load, and admit it as other waiting ones;
        returns as `_try`.
        """
        queues, waiting = self._connection.queues, self._scheduler.waiting
        if queues.failed[seq]:
            self._scheduler.allocator.release(seq)
        order = queues.choose(seq)
        more = self._try(seq, plan, left, threshold)
        queues.unchoose(seq, order)
        for other in self._skipped:
            waiting.put_back(other)
        self._skipped = []
        return more

    def _reserved_blocks(self, plan: Plan) -> int:
        """Number of free blocks that unfinished prompts still need for all their known tokens.

        These are prompts of loading and of running sequences. A prompt that ends in this step
        counts with slots for its drafts, unless it begins in this step without a load.
        """
        lacking = self._connection.blocks.lacking_blocks
        ends = {chunk.seq for chunk in plan.chunks if chunk.samples}
        whole = ends
        if self._drafts:
            whole = ends & ({seq for seq, _, _ in plan.admitted} - self._resumed)
        reserved = sum(lacking(seq, seq.num_tokens) for seq in self._connection.queues.holding)
        prompts = (seq for seq in self._scheduler.prefilling if seq not in whole)
        return reserved + sum(lacking(seq, seq.num_tokens - (seq in ends)) for seq in prompts)
