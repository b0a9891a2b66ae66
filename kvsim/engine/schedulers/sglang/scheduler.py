"""SGLang's scheduler (0.5.23): prompts first; decoders wait meanwhile, or join the batch.

One pass settles the batch before it and admits what its budget allows, which computes its prompt. A
prompt that is cut goes on first in the next pass. It decodes only if no prompt was admitted
(decoding.py). Memory is held back for running requests by counters alone; where they were too
hopeful, some are retracted.

Outputs of the step in flight do not count yet: a request that ends with it still has its place.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.hicache.part import NO_HICACHE, HicachePart
from kvsim.engine.plan import UNBOUNDED, Cached, Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.sglang.admission import Newcomer, PrefillAdmission
from kvsim.engine.schedulers.sglang.budget import (
    Budget,
    PassLimits,
    Stop,
    budget_over,
    never_starts,
)
from kvsim.engine.schedulers.sglang.decoding import DecodingScheduler
from kvsim.engine.schedulers.sglang.limits import Limits
from kvsim.engine.schedulers.sglang.outputs import NewTokenRatio
from kvsim.engine.schedulers.sglang.queue import SglangQueue
from kvsim.memory.allocator import Allocator, Refusal
from kvsim.memory.ledger import Course
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class SglangScheduler(DecodingScheduler):
    """running: requests with KV memory, both decoding and prefilling."""

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        policies: Policies,
        queue: SglangQueue,
        *,
        max_running_requests: int | None,
        max_prefill_tokens: int,
        prefill_max_requests: int,
        chunked_prefill_size: int | None,
        conservativeness: float,
        mixed: bool,
        hicache: HicachePart = NO_HICACHE,
    ) -> None:
        ratio = NewTokenRatio(conservativeness)
        super().__init__(allocator, max_model_len, policies, ratio, hicache)
        self._queue = queue
        self._limits = Limits(
            self.room.available_tokens(),
            max_model_len,
            allocator.page_tokens,
            allocator.max_sequences,
        )
        self._max_running = self._limits.max_running(max_running_requests)
        self._max_prefill_tokens = max_prefill_tokens
        self._max_prefills = prefill_max_requests
        self._chunk_size = chunked_prefill_size
        self._mixed = mixed
        self._inbox = queue.inbox
        self._chunk_waits = False  # it computed nothing in the last pass
        self._left: list[Sequence] = []  # finished since the last pass

    @property
    def expects_more(self) -> bool:
        return self.hicache.busy

    @property
    def swapped_bytes(self) -> int:
        return self.hicache.copied_bytes

    @property
    def most_running(self) -> int:
        """Requests that may run at once."""
        return self._max_running

    def members(self, plan: Plan) -> list[Sequence]:
        if any(not chunk.is_decode for chunk in plan.chunks):
            return self._prefilled
        return super().members(plan)

    # --- requests ------------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        return self._limits.refusal(request)

    def give_up(self, head: Sequence) -> Refusal | None:
        rest, page = self._outputs.wishes[head] - head.num_outputs, self.allocator.page_tokens
        refusal = never_starts(self.room, head, rest, self._chunk_size or UNBOUNDED, page)
        if refusal is not None:
            self._leave(head)
        return refusal

    def output_limit(self, request: Request) -> int:
        return max(1, min(super().output_limit(request), self._limits.max_new_tokens(request)))

    def add(self, seq: Sequence) -> bool:
        self._outputs.add(seq, self._limits.max_new_tokens(seq.request))
        if not self._inbox.always_open:
            self._inbox.send(seq)
            self.hicache.arrived(seq)
            return True  # the next look may come before the run under way ends
        super().add(seq)
        return self.hicache.arrived(seq) or not self._full or not self.running

    # --- a pass --------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        self.hicache.begin(self._queue, self.waiting.head)
        plan = Plan()
        if not self._inbox.always_open:
            for seq in self._inbox.receive(prompts=bool(self._prefilled), idle=not self.running):
                super().add(seq)
        self._settle()
        self._prefill(plan)
        if not plan.chunks and not plan.preempted:
            self._decode(plan)
        self._close(plan)
        if not plan.empty:
            self._in_flight.scheduled(plan)
            self.room.step_scheduled(self._place)
        elif not (self.waiting or self.running or self._in_flight or self.expects_more):
            self.ratio.idle()
        elif self._chunked is not None and not (self.decoders or self._in_flight):
            self._check_goes_on(self._chunked)
        self.hicache.end(plan)
        return plan

    def _check_goes_on(self, seq: Sequence) -> None:
        """InputError if the chunked prompt waits for windows that no other request holds.

        No other request goes on either: each needs a page of windows and more (schedule_policy.py,
        `add_one_req`), and SGLang ends none of them.
        """
        windows, page = self.room.windows, self.allocator.page_tokens
        if windows is not None and windows.available() <= page and not self.expects_more:
            raise InputError(
                f"SGLang would wait for ever, and serve no other: {seq.num_computed:,} of "
                f"{seq.num_tokens:,} prompt tokens of request {seq.id} are computed, and its next "
                "chunk needs more than a page of sliding windows",
                where="allocator.swa_full_tokens_ratio",
                value=f"{windows.available():,} of {windows.pool:,} slots free",
                limit=f"more than {page:,}",
                remedy="raise it, or give the pool more memory",
            )

    # --- prompts -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """The batch before this one becomes part of those that decode."""
        self._in_flight.settle()
        chunked, last = self._chunked, self._prefilled
        if chunked is not None and not self._chunk_waits:
            self.allocator.checkpoint(chunked, chunked.num_computed)
        rest = [seq for seq in last if seq is not chunked and not seq.finished]
        if len(rest) < len(last):
            self._full = False
        if rest:
            if not self.decoders:
                self._full = False
            self._enter(rest)
        self._prefilled = []
        for seq in self._left:
            if seq in self.decoders:
                del self.decoders[seq]
                self._full = False
        self._left.clear()

    def _prefill(self, plan: Plan) -> None:
        """Admit new prompts, and continue the chunked prompt."""
        if not self.decoders or self.room.windows is not None:
            self._full = False
        chunked = self._chunked
        self._chunk_waits = chunked is not None
        if chunked is None and (self._full or not self._queue.num_seen):
            return
        free_rows = self._max_running - len(self.running)
        places = self._max_running - len(self.decoders)
        if chunked is None and min(places, free_rows) <= 0:
            self._full = True
            return
        if self._queue.num_seen and self.allocator.keeps_prefixes:
            self._queue.arrange(self.room)
        mixed_tokens = len(self.decoders) if self._mixed else 0
        ratio = self.ratio.value
        limits = PassLimits(
            self.allocator.page_tokens,
            self._max_prefill_tokens,
            self._chunk_size,
            lambda: self._outputs.held_back(self.decoders, ratio),
            self._outputs.most_held_back(len(self.decoders), ratio),
            mixed_tokens,
        )
        budget = budget_over(self.room, limits)
        admission = self._admission(budget, ratio)
        more = 0
        if chunked is not None:
            rest = chunked.num_tokens - chunked.num_computed
            more = budget.next_chunk(rest)
            if more:
                budget.charge(more, admission.weight(chunked) if more == rest else 0)
        goes_on = int(more > 0)
        places = min(places, free_rows + goes_on) - goes_on
        most = self._max_prefills - goes_on
        admission.choose(self._queue, places, most, alone=not goes_on)
        taken = admission.taken
        self.engine_faults += admission.cut_twice
        short = admission.stop is Stop.MEMORY
        if short:
            self._full = bool(taken or more or self.decoders)
        elif admission.no_place:
            self._full = True
        if more or taken:
            self.hicache.submit_loads()
            if admission.skipped:
                self._queue.bring_forward(newcomer.seq for newcomer in taken)
            self._compute_prompts(plan, more, taken)
        self._short_head = self.waiting.head if short else None

    def _admission(self, budget: Budget, ratio: float) -> PrefillAdmission:
        """The admission of this pass."""
        cached = self.allocator.keeps_prefixes
        wishes = self._outputs.wishes
        return PrefillAdmission(
            self.room, budget, wishes, ratio, self._spans, self.hicache, cached=cached
        )

    def _compute_prompts(self, plan: Plan, more: int, taken: list[Newcomer]) -> None:
        """Compute `more` tokens of the chunked prompt, and start the admitted ones."""
        allocator, chunked = self.allocator, self._chunked if more else None
        waits = None if more else self._chunked
        self._chunk_waits = waits is not None
        page = allocator.page_tokens
        self.room.begin_prefill(chunked, [seq for seq, _, _ in taken])
        pages = (len(taken) + (chunked is not None)) * page if page > 1 else 0
        self.room.make_room(more + sum(new for _, _, new in taken) + pages)
        if chunked is not None:
            awaited = False
            while not self._extend(chunked, plan, chunked.num_computed + more):
                if self.decoders:  # the engine would end in an error
                    self._retract(self._outputs.by_retraction(self.decoders)[-1], plan)
                elif not awaited:  # states and windows of its chunk in flight go when it returns
                    allocator.await_steps(chunked)
                    awaited = True
                else:
                    raise InvariantError(f"{chunked} finds no room though nobody else holds any")
            self._compute(chunked, plan, more)
        for index, (seq, weighed, new_tokens) in enumerate(taken):
            cached = allocator.cached_tokens(seq)
            whole = new_tokens + cached >= seq.num_tokens
            new = seq.num_tokens - cached if whole else new_tokens
            # Where nothing can be pinned, those before it may have taken what it would have hit:
            # it is weighed anew, as only one prompt of a pass may be cut.
            if cached < weighed or not self.admit_first(
                plan, Cached(cached, False), new, cached + new
            ):
                for other, _, _ in taken[index:]:
                    self.room.unpin(other)
                break
        self._chunked = waits
        for chunk in plan.chunks:
            chunk.is_decode = False
            if not chunk.samples:
                self.engine_faults += waits is not None
                self._chunked = chunk.seq
        if plan.chunks or plan.preempted:  # else no request was admitted, and the others go on
            self._batch_up(plan)

    def _batch_up(self, plan: Plan) -> None:
        """The prompts of `plan` are a batch; those that decode ride along or sit out."""
        prompts = [chunk.seq for chunk in plan.chunks]
        ride = bool(self._mixed and self.decoders)
        if ride:
            self._drop_ending()
            ride = self._make_room_for_decoders(plan, rides=True)
        if ride:
            self._prefilled = [*prompts, *self.decoders]
            self.decoders = {}
            self._step_decoders(plan, [])
            return
        self._prefilled = prompts
        plan.num_paused = self.batch.num

    # --- the life of a plan --------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        if plan.chunks or plan.num_paused or plan.preempted or plan.finishing or plan.stalls:
            return 0
        open_to_all = not self._full or self.room.windows is not None
        if (self._queue.num_seen and open_to_all) or self._chunked is not None:
            return 0
        if self._is_short(self.waiting.head) and not self.allocator.usage(None, busy=True).idle:
            return 0  # evictions are not recorded yet
        limit = self._inbox.steps_to_receive(min(limit, self.batch.steps_to_leave()))
        return self.hicache.quiet_steps(self.allocator.steps_that_fit(limit))

    def returns_quietly(self, plan: Plan) -> bool:
        # Waiting requests are not tried: see `repeatable`.
        return not plan.finishing and self.hicache.returns_quietly(plan)

    def repeat(self, plan: Plan, steps: int) -> Course:
        self.ratio.decay(steps)
        if not self._inbox.always_open:
            self._inbox.decoded(steps)
        return super().repeat(plan, steps)

    def _complete(self, plan: Plan) -> None:
        super()._complete(plan)
        if len(plan.finishing) > 1:
            places = self.decoders
            if any(not chunk.is_decode for chunk in plan.chunks):
                places = {seq: place for place, seq in enumerate(self._prefilled)}
            plan.finishing.sort(key=places.__getitem__)

    def finish(self, plan: Plan) -> list[Sequence]:
        self._in_flight.returned(plan)
        self.room.step_returned()
        finishing = dict.fromkeys(plan.finishing)
        done: list[Sequence] = []
        for chunk in plan.chunks:
            if not chunk.samples:
                continue
            if chunk.seq in finishing:
                del finishing[chunk.seq]
                done.append(chunk.seq)
                self._leave(chunk.seq)
            else:
                self.allocator.checkpoint(chunk.seq, chunk.prior_tokens + chunk.new_tokens)
        for seq in finishing:
            done.append(seq)
            self._leave(seq)
        self._left += done
        return done

    def _leave(self, seq: Sequence) -> None:
        """All outputs of `seq` have returned."""
        self._outputs.remove(seq)
        super()._leave(seq)
        self.hicache.left(seq)
