"""Waiting sequences under a KV connector (vLLM 0.33, v1/core/sched/scheduler.py).

A waiting sequence with nothing computed is looked up on the device first and then by the connector.
The connector's hits are loaded in one of two ways. Either the sequence waits for the load, in a
queue of its own, with all blocks of the hit tokens; or it is admitted at once and the step waits. A
sequence with a pending lookup is skipped, and those behind it are tried. So is one that finds no
slot for its adapter, or no room for the embeddings of an image. A load needs neither: both are
asked for when its sequence starts.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.connectors.connector import Connector, RemoteMatch
from kvsim.engine.plan import Cached, Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.two_queues import HoldingQueues
from kvsim.memory.allocator import Demand
from kvsim.memory.loading import LoadingPromise
from kvsim.plumbing.errors import InvariantError
from kvsim.results.tier_hits import TierHit
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class AwaitingScheduler(ContinuousScheduler):
    """`ContinuousScheduler` over an allocator that loads.

    put_off: sequences with a pending lookup in the last step. loads: sequences that began to load
    in it; found: tokens of each load, including loads that the step itself waits for. hit_tokens,
    awaited_hit_tokens: see `RunTotals`.
    """

    def __init__(self, parts: ContinuousParts, connector: Connector) -> None:
        allocator, policies = parts.allocator, parts.policies
        self.queues = HoldingQueues(policies.waiting)
        self._base(parts._replace(policies=policies._replace(waiting=self.queues)))
        if not isinstance(allocator, LoadingPromise):
            raise InvariantError(f"{type(allocator).__name__} has no blocks to load into")
        self._blocks: LoadingPromise = allocator
        self.connector = connector
        self.loads: list[Sequence] = []
        self.put_off: list[Sequence] = []
        self.found: list[tuple[Sequence, TierHit]] = []
        self.hit_tokens = 0
        self._num_unready = 0  # sequences that own blocks and lack a slot or embeddings
        self._resumed: list[Sequence] = []  # in this step, after their loads
        self._prefills = self._runs = False  # what the step computes of running sequences

    def _base(self, parts: ContinuousParts) -> None:
        """What it is without a connector."""
        ContinuousScheduler.__init__(self, parts)

    def passed_by(self) -> dict[str, int]:
        loads = len(self.queues.holding) - self._num_unready + len(self.put_off)
        return super().passed_by() | {"loads": loads}

    @property
    def skips(self) -> bool:
        """Whether the last step skipped a sequence for want of a slot or of embeddings."""
        return bool(self._num_unstarted or self._num_unencoded)

    def _admit(self, plan: Plan, budget: int, threshold: int) -> None:
        self._num_unstarted = self._num_unencoded = self._num_unready = 0
        self._resumed = []
        self._prefills = any(chunk.seq in self.prefilling for chunk in plan.chunks)
        self._runs = not plan.empty
        left = self._resume_loaded(plan, budget, threshold)
        if left is None:
            return
        passed_over: list[Sequence] = []
        while left > self._input_slots and len(self.running) < self._knobs.max_num_seqs:
            if self.waiting.head is None:
                break
            more = self._admit_head(self.waiting.head, plan, left, threshold, passed_over)
            if more is None:
                break
            left = more
        for seq in reversed(passed_over):
            self.waiting.put_back(seq)

    def _admit_head(
        self,
        seq: Sequence,
        plan: Plan,
        left: int,
        threshold: int,
        passed_over: list[Sequence],
    ) -> int | None:
        """The head of the queue starts, waits for its load, or is skipped; returns the rest of the
        budget, None if it does not fit.
        """
        if not self._may_start(seq):
            self._num_unstarted += 1
            passed_over.append(self.waiting.pop())
            return left
        device_tokens = self._cached(seq).tokens
        match = self.connector.matched(seq, device_tokens)
        if match is None:
            self.put_off.append(seq)
            passed_over.append(self.waiting.pop())
            return left
        if match.waits:
            return left if self._start_load(seq, plan, device_tokens, match) else None
        cached = Cached(device_tokens + match.tokens, False)
        new_tokens, drafts = self._first_chunk(seq, cached.tokens, left, threshold)
        if not new_tokens:
            return None
        new_tokens = self._allowed(seq, cached.tokens, new_tokens)
        if not new_tokens:
            self._num_unencoded += 1
            passed_over.append(self.waiting.pop())
            return left
        fit_tokens = self._fit_tokens(seq, cached.tokens + new_tokens - drafts)
        if not self._admit_first(plan, cached, new_tokens, fit_tokens, drafts):
            return None
        self.connector.allocated(seq, device_tokens, match)
        if match.tokens:
            self._count_hit(seq, device_tokens, match)
        return left - new_tokens - self._input_slots

    def _resume_loaded(self, plan: Plan, budget: int, threshold: int) -> int | None:
        """Start sequences with finished loads; returns the rest of `budget`, None if one of them
        does not fit, so that none behind it starts.
        """
        queues, left = self.queues, budget
        if len(queues.holding) == len(queues.loading):
            return left
        for seq in queues.in_turn:
            if left <= self._input_slots or len(self.running) >= self._knobs.max_num_seqs:
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
                self._blocks.end_load(seq, queues.loaded[seq])
            computed = min(queues.promote(seq), seq.num_tokens - 1)
            if not self._may_start(seq):
                self._num_unstarted += 1
                self._num_unready += 1
                continue
            if not computed:
                self.connector.matched(seq, 0)  # who has nothing computed is looked up again
            new_tokens, drafts = self._first_chunk(seq, computed, left, threshold)
            if not new_tokens:
                return None
            new_tokens = self._allowed(seq, computed, new_tokens)
            if not new_tokens:
                self._num_unencoded += 1
                self._num_unready += 1
                continue
            num_tokens, busy = computed + new_tokens, bool(self.running)
            fit_tokens = self._fit_tokens(seq, num_tokens - drafts)
            demand = Demand(num_tokens, fit_tokens, computed, busy)
            if not self._blocks.resume(seq, demand):
                self.limits.declined(seq)
                return None
            queues.let_go(seq)
            self._resumed.append(seq)
            self._start(seq, plan, computed, new_tokens, drafts)
            left -= new_tokens + self._input_slots
        return left

    def _look_up_again(self, seq: Sequence, plan: Plan, left: int, threshold: int) -> int | None:
        """A sequence with a failed load frees its blocks and is admitted like other waiting ones;
        returns as `_admit_head`.
        """
        if self.queues.failed[seq]:
            self.allocator.release(seq)
        passed_over: list[Sequence] = []
        with self.queues.chosen(seq):
            more = self._admit_head(seq, plan, left, threshold, passed_over)
        for other in passed_over:
            self.waiting.put_back(other)
        return more

    def _first_chunk(
        self, seq: Sequence, computed: int, left: int, threshold: int
    ) -> tuple[int, int]:
        """Tokens of the first chunk, and how many of them are padding drafts; 0: nothing in this
        step.
        """
        left -= self._input_slots
        new_tokens, drafts = seq.num_tokens - computed, 0
        if new_tokens == 1:
            padding = self._padding(computed, prefills=self._prefills, runs=self._runs)
            if padding is None or 1 + padding > left:
                return 0, 0
            drafts = padding
            new_tokens += drafts
        if 0 < threshold < new_tokens:
            new_tokens = threshold
        if new_tokens > left and not self._knobs.enable_chunked_prefill:
            return 0, 0
        cut = self._cut(seq, computed, min(new_tokens, left))
        return (1, 0) if drafts and 0 < cut != 1 + drafts else (cut, drafts)

    def _fit_tokens(self, seq: Sequence, num_tokens: int) -> int:
        return max(num_tokens, seq.num_tokens) if self._knobs.fits_whole else num_tokens

    def _start_load(
        self, seq: Sequence, plan: Plan, device_tokens: int, match: RemoteMatch
    ) -> bool:
        """The head of the queue takes its blocks and waits for its load; False: no room."""
        num_tokens = device_tokens + match.tokens
        fit_tokens = self._fit_tokens(seq, num_tokens)
        demand = Demand(num_tokens, fit_tokens, device_tokens, bool(self.running))
        if not self._blocks.start_load(seq, demand, self._promised_blocks(plan)):
            self.limits.declined(seq)
            return False
        self.waiting.pop()
        self.queues.load(seq, num_tokens)
        self.loads.append(seq)
        self.connector.allocated(seq, device_tokens, match)
        self._count_hit(seq, device_tokens, match)
        return True

    def _count_hit(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        """Of what is loaded the last token of all is computed again: it is no hit."""
        storage_tokens = self.connector.take_storage_tokens(seq, device_tokens, match)
        hit_tokens = min(match.tokens, seq.num_tokens - 1 - device_tokens)
        hit = TierHit(device_tokens, hit_tokens, min(storage_tokens, hit_tokens))
        self.found.append((seq, hit))
        if not seq.num_preemptions:
            self.hit_tokens += hit_tokens
            self.awaited_hit_tokens += hit_tokens if match.waits else 0

    def _promised_blocks(self, plan: Plan) -> int:
        """Free blocks that unfinished prompts still need for all their known tokens: of loading
        sequences, and of running ones that are not complete after this step.
        """
        lacking = self._blocks.lacking_blocks
        done = {chunk.seq for chunk in plan.chunks if chunk.samples}
        promised = sum(lacking(seq, seq.num_tokens) for seq in self.queues.holding)
        prompts = (seq for seq in self.prefilling if seq not in done)
        return promised + sum(lacking(seq, seq.num_tokens) for seq in prompts)
