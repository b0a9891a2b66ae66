"""SGLang's scheduler (0.5.23): prompts first; decoders wait meanwhile, or join the batch.

One pass settles the batch before it, admits what its budget allows (prefilling.py), and decodes
only if no prompt was admitted (decoding.py). Memory is held back for running requests by counters
alone; where they were too hopeful, some are retracted.

Outputs of the step in flight do not count yet: a request that ends with it still has its place.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import UNBOUNDED, Plan
from kvsim.engine.schedulers.sglang.budget import never_starts
from kvsim.engine.schedulers.sglang.prefilling import PrefillingScheduler
from kvsim.memory.allocator import Refusal
from kvsim.memory.ledger import Course
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class SglangScheduler(PrefillingScheduler):
    """running: requests with KV memory, both decoding and prefilling."""

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
            return True  # the next look may come before the run under way ends
        super().add(seq)
        return not self._full or not self.running

    # --- a pass --------------------------------------------------------------------------------

    def schedule(self) -> Plan:
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
        return plan

    def _check_goes_on(self, seq: Sequence) -> None:
        """InputError if the prompt under way waits for windows that nobody else holds. No other
        request goes on either: each needs a page of windows and more (schedule_policy.py,
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

    # --- the life of a plan --------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        if plan.chunks or plan.num_paused or plan.preempted or plan.finishing or plan.stalls:
            return 0
        open_to_all = not self._full or self.room.windows is not None
        if (self._queue.num_seen and open_to_all) or self._chunked is not None:
            return 0
        if self._is_short(self.waiting.head) and not self.allocator.usage(None, busy=True).idle:
            return 0  # evictions are not recorded yet
        limit = self._inbox.steps_to_receive(limit)
        return self.allocator.steps_that_fit(min(limit, self.batch.steps_to_leave()))

    def returns_quietly(self, plan: Plan) -> bool:
        return not plan.finishing  # waiting requests are not tried: see `repeatable`

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
