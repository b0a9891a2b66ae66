"""Prompts under SGLang's rules: the batch before is settled, and requests are admitted.

What the budget of a pass allows computes its prompt, and the decoding requests wait or ride along.
A prompt that is cut goes on first in the next pass.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Cached, Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.sglang.admission import Newcomer, PrefillAdmission
from kvsim.engine.schedulers.sglang.budget import Budget, PassLimits, Stop, budget_over
from kvsim.engine.schedulers.sglang.decoding import DecodingScheduler
from kvsim.engine.schedulers.sglang.limits import Limits
from kvsim.engine.schedulers.sglang.outputs import NewTokenRatio
from kvsim.engine.schedulers.sglang.queue import SglangQueue
from kvsim.memory.allocator import Allocator
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefillingScheduler(DecodingScheduler):
    """The limits on requests and prompts, and the batch of prompts of a pass."""

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
    ) -> None:
        super().__init__(allocator, max_model_len, policies, NewTokenRatio(conservativeness))
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
    def most_running(self) -> int:
        """Requests that may run at once."""
        return self._max_running

    def members(self, plan: Plan) -> list[Sequence]:
        if any(not chunk.is_decode for chunk in plan.chunks):
            return self._prefilled
        return super().members(plan)

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
        """Admit what goes in, and go on with the prompt under way."""
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
            self._compute_prompts(plan, more, taken)
        self._short_head = self.waiting.head if short else None

    def _admission(self, budget: Budget, ratio: float) -> PrefillAdmission:
        """The admission of this pass."""
        cached = self.allocator.keeps_prefixes
        wishes = self._outputs.wishes
        return PrefillAdmission(self.room, budget, wishes, ratio, self._spans, cached=cached)

    def _compute_prompts(self, plan: Plan, more: int, taken: list[Newcomer]) -> None:
        """The prompt under way computes `more` tokens, and those taken start."""
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
            if cached < weighed or not self._admit_first(
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
