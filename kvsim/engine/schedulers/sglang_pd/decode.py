"""SGLang's decode engine: room for whole prompts, which come from prefill engines, and their
outputs (disaggregation/decode.py, decode_schedule_batch_mixin.py, 0.5.23).

A pass takes back who was retracted, then promises room, then takes over what has arrived; then all
decode. No step computes a prompt. Who is retracted goes to host memory and comes back from there.
"""

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.sglang_pd.moves import Moves
from kvsim.engine.schedulers.sglang_pd.receiving import ReceivingScheduler
from kvsim.memory.ledger import Course, Usage
from kvsim.sequence import Sequence

OUT_OF_MEMORY = "the decode engine ran out of memory, and no other request could be retracted (500)"
HOST_FULL = "it was retracted, and the host memory for retracted requests is full (500)"


class SglangDecodeScheduler(ReceivingScheduler):
    """A pass of the engine, and the life of its plans."""

    @property
    def expects_more(self) -> bool:
        return bool(self.queue.draining)

    # --- a pass --------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        self.moves, self._next_moves = self._next_moves, Moves()
        plan = Plan()
        self._pass(plan)
        while plan.empty and not self._settled and not self._in_flight:
            self._pass(plan)  # the room of those who ended is there one pass later
        if not plan.empty:
            self._in_flight.scheduled(plan)
        elif not (len(self.queue) or self.expects_more or self.running or self._in_flight):
            self.ratio.idle()
        return plan

    def _pass(self, plan: Plan) -> None:
        self._in_flight.settle()
        gone = len(plan.left) + len(plan.failed)
        now_ps = self._port.now_ps
        queue = self.queue
        for seq in queue.arrived:
            queue.preallocating[seq] = self._exchange.to_receive(seq.id, self._port, now_ps)
        queue.arrived.clear()
        self._free_drained(now_ps)
        self._take_back(plan, now_ps)
        self._short_head = None
        if not queue.retracted:
            self._preallocate(now_ps + plan.held_ps)
            self._take_arrived(plan, now_ps + plan.held_ps)
        self._join_ready(plan)
        self._settled = not self._left and len(plan.left) + len(plan.failed) == gone
        self._drop_finished()
        self._decode(plan)
        self._close(plan)

    def _take_back(self, plan: Plan, now_ps: int) -> None:
        """Retracted requests come back from host memory, in order; the first that does not fit ends
        it.
        """
        queue, available = self.queue, self.room.available_tokens
        for seq in list(queue.retracted):
            tokens = seq.prompt_tokens + seq.num_outputs - 1
            need = self._paged(tokens) + self._reserved
            if need > available() - self._reserved * self._active or self._free_rows <= 0:
                break
            del queue.retracted[seq]
            self._radix.expect(seq, tokens)
            at_ps = now_ps + plan.held_ps
            begin_ps = max(at_ps, self._in_flight.end_ps)
            end_ps = begin_ps + self._copies.back_ps(begin_ps, self._paged(tokens))
            plan.held_ps += end_ps - at_ps
            self._radix.arrived(seq, tokens)
            queue.ready[seq] = None
            self.moves.resumed.append(seq.id)

    def _join_ready(self, plan: Plan) -> None:
        """Who is ready decodes from this pass on, as far as there are places; those who finished
        with the last step have theirs yet.
        """
        places = max(0, self._max_running - len(self.decoders))
        now_ps = self._port.now_ps + plan.held_ps
        joining = []
        for seq in list(self.queue.ready)[:places]:
            del self.queue.ready[seq]
            seq.num_computed = seq.prompt_tokens + seq.num_outputs - 1
            seq.order = self._orders = self._orders + 1
            self.running[seq] = None
            if seq.first_token_ps < 0:
                seq.first_token_ps = now_ps
            self.allocator.checkpoint(seq, seq.num_computed)
            if seq.num_outputs == seq.output_tokens:
                self._leave(seq)
                self._outputs.remove(seq)
                plan.left.append(seq)
                continue
            if seq.num_preemptions:
                plan.rejoined.append(seq)
            self._join(seq)
            self._in_flight.joined(seq)
            joining.append(seq)
        self._enter(joining)

    def _drop_finished(self) -> None:
        """Who finished with the last step is no member of the batch any more."""
        for seq in self._left:
            self.decoders.pop(seq, None)
            self._outputs.remove(seq)
        self._left.clear()

    def _drop_ending(self) -> bool:
        return False  # this engine does not look ahead: they decode once more

    def _retract(self, seq: Sequence, plan: Plan) -> None:
        if len(self.decoders) == 1:
            self._abort(seq, plan, OUT_OF_MEMORY)
            return
        tokens = self._paged(seq.prompt_tokens + self._outputs.of(seq) - 1)
        if self._host_tokens is not None and self._retracted_tokens + tokens > self._host_tokens:
            self._abort(seq, plan, HOST_FULL)
            return
        plan.held_ps += self._copies.out_ps(self._port.now_ps + plan.held_ps, tokens)
        plan.rejoined = [other for other in plan.rejoined if other is not seq]
        super()._retract(seq, plan)

    @property
    def _retracted_tokens(self) -> int:
        """Tokens in host memory, in whole pages."""
        retracted = self.queue.retracted
        return sum(self._paged(seq.prompt_tokens + seq.num_outputs - 1) for seq in retracted)

    def _abort(self, seq: Sequence, plan: Plan, why: str) -> None:
        """There is no memory for `seq`, which ends with an error."""
        plan.rejoined = [other for other in plan.rejoined if other is not seq]
        self._end_with_error(seq, plan, why)
        self.moves.failed.append(seq.id)
        self._settled = False

    # --- the life of a plan --------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        if plan.chunks or plan.preempted or plan.finishing or plan.stalls or plan.rejoined:
            return 0
        queue = self.queue
        if not self._settled and len(queue):
            return 0
        head = self._short_head
        if head is not None and not self._stays_short(head):
            return 0
        return self.allocator.steps_that_fit(min(limit, self.batch.steps_to_leave()))

    def _stays_short(self, head: Sequence) -> bool:
        """Whether `head` is refused however much those who decode come to hold: what is held back
        for each request does not fall, and free memory does.
        """
        need = self._paged(head.prompt_tokens) + self._reserved
        left = self.room.available_tokens() - self._reserved * self._active
        return not self.allocator.keeps_prefixes and need > left

    def returns_quietly(self, plan: Plan) -> bool:
        return not plan.finishing

    def repeat(self, plan: Plan, steps: int) -> Course:
        self.ratio.decay(steps)
        return super().repeat(plan, steps)

    def _complete(self, plan: Plan) -> None:
        super()._complete(plan)
        plan.finishing.sort(key=self.decoders.__getitem__)

    def finish(self, plan: Plan) -> list[Sequence]:
        self._in_flight.returned(plan)
        for seq in plan.finishing:
            self._leave(seq)
        self._left += plan.finishing
        return plan.finishing

    def usage_for(self, head: Sequence | None) -> Usage:
        usage = self.allocator.usage(None, busy=bool(self.running))
        if self._short_head is not None:
            usage = usage._replace(short=usage.short + usage.idle, idle=0)
        return usage
