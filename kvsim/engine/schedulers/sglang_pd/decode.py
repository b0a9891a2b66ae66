"""SGLang's decode engine: room for whole prompts, which come from prefill engines, and their
outputs (disaggregation/decode.py, decode_schedule_batch_mixin.py, 0.5.23).

A pass resumes retracted requests, then preallocates, then takes over transferred prompts; then all
decode. No step computes a prompt. The KV of a retracted request is copied to host memory and back.
"""

from collections.abc import Iterator

from kvsim.engine.plan import Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.sglang.decoding import DecodingScheduler
from kvsim.engine.schedulers.sglang.limits import Limits
from kvsim.engine.schedulers.sglang.outputs import NewTokenRatio
from kvsim.engine.schedulers.sglang_pd.budget import BUFFERS, BatchMember, DecodeBudget
from kvsim.engine.schedulers.sglang_pd.host_copies import HostCopies
from kvsim.engine.schedulers.sglang_pd.moves import Moves
from kvsim.engine.schedulers.sglang_pd.queue import DecodeQueue
from kvsim.engine.transfers.exchange import Exchange, Port
from kvsim.memory.allocator import Refusal
from kvsim.memory.ledger import Course, Usage
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence

HOST_RATIO = 0.2  # of the pool, where that holds one of the longest requests
ROW_TOKENS = 4  # of a request's row beyond max_model_len
MOST_FOR_EXTRA_ROWS = 32  # running requests up to which there are extra rows
OUT_OF_MEMORY = "the decode engine ran out of memory, and no other request could be retracted (500)"
HOST_FULL = "it was retracted, and the host memory for retracted requests is full (500)"


class SglangDecodeScheduler(DecodingScheduler):
    """running: requests that decode. moves: what happened since the last pass."""

    def __init__(
        self,
        allocator: RadixAllocator,
        max_model_len: int,
        policies: Policies,
        queue: DecodeQueue,
        *,
        max_running_requests: int | None,
        num_reserved_decode_tokens: int,
        retraction_host_ratio: float | None,
        conservativeness: float,
        overlaps: bool,
    ) -> None:
        super().__init__(allocator, max_model_len, policies, NewTokenRatio(conservativeness))
        self._radix = allocator
        self.queue = queue
        pool, page = self.room.available_tokens(), allocator.page_tokens
        self._limits = Limits(pool, max_model_len, page, allocator.max_sequences)
        self._pool = pool
        most = self._max_running = self._limits.max_running(max_running_requests)
        self._rows = most + (BUFFERS * most if most <= MOST_FOR_EXTRA_ROWS else 0)
        self._reserved = num_reserved_decode_tokens
        self._host_tokens = self._host_room(retraction_host_ratio, max_model_len)
        self._overlaps = overlaps
        self._left: list[Sequence] = []  # finished, and in the batch until the next pass drops them
        self._short_head: Sequence | None = None  # who was refused for memory
        self._settled = True  # the next pass would decide as this one did
        self.moves = Moves()
        self._next_moves = Moves()

    def _host_room(self, ratio: float | None, max_model_len: int) -> int | None:
        """Tokens of host memory for retracted requests, in whole pages.

        None: no limit, since an engine with a prefix cache copies to memory that it does not
        reserve.
        """
        if self.allocator.keeps_prefixes:
            return None
        pool = self._pool
        if ratio is None:
            longest = self._paged(min(max_model_len + ROW_TOKENS - 1, pool))
            ratio = max(HOST_RATIO, longest / pool)
        page = self.allocator.page_tokens
        return (int(pool * ratio) // page + 1) * page

    def connect(self, exchange: Exchange, port: Port, copies: HostCopies) -> None:
        """Connect the transfers, the port that wakes this engine, and the host copies; called
        before the run.
        """
        self._exchange, self._port, self._copies = exchange, port, copies

    # --- requests ------------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        found = self._limits.refusal(request)
        need = self._paged(request.prompt_tokens) + self._reserved
        if found is None and need > self._pool:
            found = Refusal(
                "its prompt and what is reserved for outputs never fit the decode pool",
                need,
                self._pool,
                "tokens",
                "lower num_reserved_decode_tokens, clip the prompts or enlarge the pool",
            )
        return found

    def output_limit(self, request: Request) -> int:
        return max(1, min(super().output_limit(request), self._limits.max_new_tokens(request)))

    def add(self, seq: Sequence) -> bool:
        self._outputs.add(seq, self._limits.max_new_tokens(seq.request))
        seq.num_outputs = 1  # sampled by the prefill engine
        self.queue.add(seq)
        return True

    def _paged(self, tokens: int) -> int:
        """`tokens` in whole pages."""
        page = self.allocator.page_tokens
        return ceil_div(tokens, page) * page

    @property
    def expects_more(self) -> bool:
        return bool(self.queue.draining)

    # --- room for prompts, and what arrives ----------------------------------------------------

    def _preallocate(self, now_ps: int) -> None:
        """Allocate whole prompts in queue order, except those with receivers that are not ready;
        stop at the first that does not fit.
        """
        queue, most = self.queue, BUFFERS * self._max_running
        budget = None  # counted over the whole batch, and only where somebody may come
        for seq, transfer in list(queue.preallocating.items()):
            if transfer.ready_ps > now_ps:
                continue
            if self._free_rows <= 0 or queue.num_buffers >= most:
                break
            budget = budget or DecodeBudget.of(self._reserved, self._members())
            cached = self.room.pin(seq)
            if self._need(seq, budget, cached) > self._left_by(budget):
                self.room.unpin(seq)
                self._short_head = seq
                break
            del queue.preallocating[seq]
            queue.transferring[seq] = transfer
            seq.hit_tokens = cached
            if seq.first_scheduled_ps < 0:
                seq.first_scheduled_ps = now_ps
            self._radix.expect(seq, seq.prompt_tokens)
            self._exchange.allocate(transfer, cached, now_ps)
            self.moves.preallocated.append((seq.id, cached))

    def _need(self, seq: Sequence, budget: DecodeBudget, cached: int) -> int:
        prompt = seq.prompt_tokens
        return budget.need(prompt, self._paged(prompt), cached, self._outputs.wishes[seq])

    def _left_by(self, budget: DecodeBudget) -> int:
        return budget.left(self.room.available_tokens(), self._active)

    def _take_arrived(self, plan: Plan, now_ps: int) -> None:
        """Queue transferred prompts for a place in the batch; end those with a failed transfer."""
        queue = self.queue
        for seq, transfer in list(queue.transferring.items()):
            if transfer.late_ps <= now_ps < transfer.ended_ps:
                self._exchange.late(transfer, now_ps)
            if transfer.ended_ps <= now_ps:
                del queue.transferring[seq]
                self._exchange.close(seq.id)
                if transfer.failure is not None:
                    self._exchange.drain(transfer, now_ps)
                    queue.draining[seq] = transfer
                    self._outputs.remove(seq)
                    self.moves.failed.append(seq.id)
                    plan.failed.append((seq, transfer.failure))
                    continue
                self._radix.arrived(seq, seq.prompt_tokens)
                queue.ready[seq] = None
                self.moves.transferred.append(seq.id)

    def _free_drained(self, now_ps: int) -> None:
        """The room of failed transfers is free when the prefill engine has said that it writes no
        more.
        """
        draining = self.queue.draining
        for seq in [seq for seq, failed in draining.items() if failed.drained_ps <= now_ps]:
            del draining[seq]
            self._radix.give_up(seq)

    def _members(self) -> Iterator[BatchMember]:
        """The running batch, those in it that ended with the last step."""
        wishes = self._outputs.wishes
        for seq in self.decoders:
            outputs = seq.num_outputs if seq.finished else self._outputs.of(seq)
            yield BatchMember(seq.prompt_tokens, outputs, wishes[seq])

    @property
    def _active(self) -> int:
        """Number of requests with tokens held back for their outputs."""
        return len(self.decoders) + len(self.queue.transferring) + len(self.queue.ready)

    @property
    def _free_rows(self) -> int:
        queue = self.queue
        return self._rows - len(self.running) - queue.num_buffers - len(queue.ready)

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
        """Let ready requests decode from this pass on, as far as there are places.

        Requests that finished with the last step still count.
        """
        places = max(0, self._max_running - len(self.decoders))
        now_ps = self._port.now_ps + plan.held_ps
        joining = []
        for seq in list(self.queue.ready)[:places]:
            del self.queue.ready[seq]
            seq.num_computed = seq.prompt_tokens + seq.num_outputs - 1
            seq.order = self._orders = self._orders + 1
            self.running[seq] = None
            ends = seq.num_outputs == seq.output_tokens
            if seq.first_token_ps < 0:  # one that ends with its first token leaves with this pass
                seq.first_token_ps = self._port.now_ps if ends else now_ps
            self.allocator.checkpoint(seq, seq.num_computed)
            if ends:
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
        """Remove the requests that finished with the last step from the batch."""
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
        """End `seq` with an error for lack of memory."""
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
        """Whether `head` is refused however much the decoding requests come to hold.

        The tokens held back for each request do not fall, and free memory does.
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
