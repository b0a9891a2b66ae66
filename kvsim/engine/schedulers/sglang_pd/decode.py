"""The decode side of an SGLang engine: it allocates memory for whole prompts, receives their KV
from prefill engines, and decodes (disaggregation/decode.py, decode_schedule_batch_mixin.py,
0.5.23).

A pass resumes retracted requests, then preallocates prompts, then processes transferred ones; then
all decode. No step computes a prompt. The KV of a retracted request is copied to host memory and
back.
"""

from collections.abc import Iterator

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.sglang.parts import NO_HICACHE, EngineSide, HicachePart
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.schedulers.sglang_pd.budget import BUFFERS, BatchMember, DecodeBudget
from kvsim.engine.schedulers.sglang_pd.host_copies import HostCopies
from kvsim.engine.schedulers.sglang_pd.moves import Moves
from kvsim.engine.schedulers.sglang_pd.queue import DecodeQueue
from kvsim.engine.schedulers.sglang_pd.restores import LOST, Restores
from kvsim.engine.transfers.exchange import Exchange, Port
from kvsim.memory.allocator import Refusal
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence

HOST_RATIO = 0.2  # of the pool, where that holds one of the longest requests
ROW_TOKENS = 4  # of a request's row beyond max_model_len
MOST_FOR_EXTRA_ROWS = 32  # running requests up to which there are extra rows
OUT_OF_MEMORY = "the decode engine ran out of memory, and no other request could be retracted (500)"
HOST_FULL = "it was retracted, and the host memory for retracted requests is full (500)"


class DecodeSide(EngineSide):
    """The decode side. queue: all requests that do not decode.

    reserved_tokens: output tokens counted for each request. retraction_host_ratio: host memory for
    retracted requests, as a share of the pool; None: 0.2, or more if one of the longest requests
    needs it. moves: transfer events since the last pass.
    """

    def __init__(
        self,
        pages: RadixAllocator,
        queue: DecodeQueue,
        *,
        reserved_tokens: int,
        retraction_host_ratio: float | None,
        hicache: HicachePart = NO_HICACHE,
    ) -> None:
        super().__init__(looks_ahead=False)  # those that end by length decode once more
        self._pages = pages
        self.queue = queue
        self._pool = pages.pool.available_tokens()
        self._reserved = reserved_tokens
        self._host_ratio = retraction_host_ratio
        self._restores = Restores(pages, hicache)
        self._rows = 0
        self._host_tokens: int | None = None
        self._settled = True  # the next pass would decide as this one did
        self.moves = Moves()
        self._next_moves = Moves()

    def attach(self, scheduler: SglangScheduler) -> None:
        """Set the scheduler of this side."""
        self._scheduler = scheduler
        most = scheduler.most_running
        self._rows = most + (BUFFERS * most if most <= MOST_FOR_EXTRA_ROWS else 0)
        self._host_tokens = self._host_room(scheduler.max_model_len)

    def _host_room(self, max_model_len: int) -> int | None:
        """Tokens of host memory for retracted requests, in whole pages.

        None: no limit, since an engine with a prefix cache copies to memory that it does not
        reserve.
        """
        if self._pages.keeps_prefixes:
            return None
        pool, page, ratio = self._pool, self._pages.page_tokens, self._host_ratio
        if ratio is None:
            longest = self._paged(min(max_model_len + ROW_TOKENS - 1, pool))
            ratio = max(HOST_RATIO, longest / pool)
        return (int(pool * ratio) // page + 1) * page

    def connect(self, exchange: Exchange, port: Port, copies: HostCopies) -> None:
        """Set the transfers, the port that wakes this engine, and the host copies; called before
        the run.
        """
        self._exchange, self._port, self._copies = exchange, port, copies

    # --- requests -------------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        need = self._paged(request.prompt_tokens) + self._reserved
        if need <= self._pool:
            return None
        return Refusal(
            "its prompt and what is reserved for outputs never fit the decode pool",
            need,
            self._pool,
            "tokens",
            "lower num_reserved_decode_tokens, clip the prompts or enlarge the pool",
        )

    def takes(self, seq: Sequence) -> bool:
        seq.num_outputs = 1  # sampled by the prefill engine
        self.queue.add(seq)
        return True

    def _paged(self, tokens: int) -> int:
        """`tokens` rounded up to whole pages."""
        page = self._pages.page_tokens
        return ceil_div(tokens, page) * page

    @property
    def busy(self) -> bool:
        return bool(self.queue.draining)

    # --- room for prompts, and what arrives -----------------------------------------------------

    def _preallocate(self, now_ps: int) -> None:
        """Allocate whole prompts in queue order, until the first that does not fit.

        Requests with a receiver that is not ready yet are skipped.
        """
        queue, most = self.queue, BUFFERS * self._scheduler.most_running
        budget = None  # counted over the batch, only if a request may be admitted
        for seq, transfer in list(queue.preallocating.items()):
            if transfer.ready_ps > now_ps:
                continue
            if self._free_rows <= 0 or queue.num_buffers >= most:
                break
            budget = budget or DecodeBudget.of(self._reserved, self._members())
            cached = self._pages.room.pin(seq)
            if self._need(seq, budget, cached) > self._left_by(budget):
                self._pages.room.unpin(seq)
                self.short_head = seq
                break
            del queue.preallocating[seq]
            queue.transferring[seq] = transfer
            missing = self._restores.promise(seq)
            seq.hit_tokens = cached + missing
            self._pages.count_hit(seq.prompt_tokens, cached + missing, missing)
            if seq.first_scheduled_ps < 0:
                seq.first_scheduled_ps = now_ps
            self._pages.transferred.expect(seq, seq.prompt_tokens, missing)
            self._exchange.allocate(transfer, cached + missing, now_ps)
            self.moves.preallocated.append((seq.id, cached + missing))

    def _need(self, seq: Sequence, budget: DecodeBudget, cached: int) -> int:
        prompt = seq.prompt_tokens
        return budget.need(prompt, self._paged(prompt), cached, self._scheduler.outputs.wishes[seq])

    def _left_by(self, budget: DecodeBudget) -> int:
        available = self._pages.pool.available_tokens() - self._restores.reserved_tokens
        return budget.left(available, self._active)

    def _take_arrived(self, plan: Plan, now_ps: int) -> None:
        """Move requests with transferred prompts to the ready queue; end those with a failed
        transfer.
        """
        queue = self.queue
        for seq, transfer in list(queue.transferring.items()):
            if transfer.late_ps <= now_ps < transfer.ended_ps:
                self._exchange.late(transfer, now_ps)
            lost = transfer.failure is not None
            if transfer.ended_ps <= now_ps and (lost or self._restores.is_ready(seq, now_ps)):
                del queue.transferring[seq]
                self._restores.done(seq)
                self._exchange.close(seq.id)
                if transfer.failure is not None:
                    self._exchange.drain(transfer, now_ps)
                    queue.draining[seq] = transfer
                    self._scheduler.outputs.remove(seq)
                    self.moves.failed.append(seq.id)
                    plan.failed.append((seq, transfer.failure))
                    continue
                self._pages.transferred.arrived(seq, seq.prompt_tokens)
                queue.ready[seq] = None
                self.moves.transferred.append(seq.id)

    def _free_drained(self, now_ps: int) -> None:
        """Free the memory of failed transfers, once the prefill engine has confirmed that it writes
        no more.
        """
        draining = self.queue.draining
        for seq in [seq for seq, failed in draining.items() if failed.drained_ps <= now_ps]:
            del draining[seq]
            del self._pages.transferred.expected[seq]
            self._pages.release(seq)

    def _members(self) -> Iterator[BatchMember]:
        """The running batch, including requests that ended with the last step."""
        wishes = self._scheduler.outputs.wishes
        for seq in self._scheduler.decoders:
            outputs = seq.num_outputs if seq.finished else self._scheduler.outputs.of(seq)
            yield BatchMember(seq.prompt_tokens, outputs, wishes[seq])

    @property
    def _active(self) -> int:
        """Number of requests with output tokens counted in the budget."""
        return len(self._scheduler.decoders) + len(self.queue.transferring) + len(self.queue.ready)

    @property
    def _free_rows(self) -> int:
        queue = self.queue
        return self._rows - len(self._scheduler.running) - queue.num_buffers - len(queue.ready)

    # --- a pass ---------------------------------------------------------------------------------

    def begin(self, plan: Plan) -> None:
        self.moves, self._next_moves = self._next_moves, Moves()

    def joining(self, plan: Plan, prefilled: list[Sequence]) -> list[Sequence]:
        gone = len(plan.left) + len(plan.failed)
        now_ps = self._port.now_ps
        queue = self.queue
        for seq in queue.arrived:
            queue.preallocating[seq] = self._exchange.to_receive(seq.id, self._port, now_ps)
        queue.arrived.clear()
        self._free_drained(now_ps)
        self._take_back(plan, now_ps)
        self.short_head = None
        if not queue.retracted:
            at_ps = now_ps + plan.held_ps
            for seq in self._restores.load():
                self._exchange.fail(queue.transferring[seq], LOST, at_ps)
            self._preallocate(at_ps)
            self._take_arrived(plan, at_ps)
        joining = self._joining(plan)
        same = len(plan.left) + len(plan.failed) == gone
        self._settled = (
            same and not self._scheduler.decoding.finished and not self._restores.pending
        )
        return joining

    def passes_again(self, plan: Plan) -> bool:
        # Memory of requests that ended is free one pass later.
        return plan.empty and not self._settled and not self._scheduler.in_flight

    def _take_back(self, plan: Plan, now_ps: int) -> None:
        """Resume retracted requests from host memory, in order, until the first that does not
        fit.
        """
        queue, available = self.queue, self._pages.pool.available_tokens
        for seq in list(queue.retracted):
            tokens = seq.prompt_tokens + seq.num_outputs - 1
            need = self._paged(tokens) + self._reserved
            if need > available() - self._reserved * self._active or self._free_rows <= 0:
                break
            del queue.retracted[seq]
            self._pages.transferred.expect(seq, tokens)
            at_ps = now_ps + plan.held_ps
            begin_ps = max(at_ps, self._scheduler.in_flight.end_ps)
            end_ps = begin_ps + self._copies.back_ps(begin_ps, self._paged(tokens))
            plan.held_ps += end_ps - at_ps
            self._pages.transferred.arrived(seq, tokens)
            queue.ready[seq] = None
            self.moves.resumed.append(seq.id)

    def _joining(self, plan: Plan) -> list[Sequence]:
        """Ready requests that decode from this pass on, as many as may still run.

        Requests that finished with the last step still count as running.
        """
        scheduler = self._scheduler
        places = max(0, scheduler.most_running - len(scheduler.decoders))
        now_ps = self._port.now_ps + plan.held_ps
        joining = []
        for seq in list(self.queue.ready)[:places]:
            del self.queue.ready[seq]
            seq.num_computed = seq.prompt_tokens + seq.num_outputs - 1
            scheduler.resume(seq)
            ends = seq.num_outputs == seq.output_tokens
            if seq.first_token_ps < 0:  # one that ends with its first token leaves with this pass
                seq.first_token_ps = self._port.now_ps if ends else now_ps
            self._pages.checkpoint(seq, seq.num_computed)
            if ends:
                scheduler.leave(seq)
                scheduler.outputs.remove(seq)
                plan.left.append(seq)
                continue
            if seq.num_preemptions:
                plan.rejoined.append(seq)
            scheduler.batch.join(seq, seq.num_computed)
            scheduler.in_flight.joined(seq)
            joining.append(seq)
        return joining

    # --- retraction -----------------------------------------------------------------------------

    def refuses_to_retract(self, seq: Sequence, *, lone: bool) -> str | None:
        if lone:
            return OUT_OF_MEMORY
        full = self._host_tokens is not None and (
            self._retracted_tokens + self._tokens_to_copy(seq) > self._host_tokens
        )
        return HOST_FULL if full else None

    def retracting(self, seq: Sequence, plan: Plan) -> None:
        at_ps = self._port.now_ps + plan.held_ps
        plan.held_ps += self._copies.out_ps(at_ps, self._tokens_to_copy(seq))

    def failed(self, seq: Sequence) -> None:
        self.moves.failed.append(seq.id)
        self._settled = False

    def _tokens_to_copy(self, seq: Sequence) -> int:
        """Tokens of a decoding `seq` that a retraction copies, in whole pages."""
        return self._paged(seq.prompt_tokens + self._scheduler.outputs.of(seq) - 1)

    @property
    def _retracted_tokens(self) -> int:
        """Tokens of retracted requests in host memory, in whole pages."""
        retracted = self.queue.retracted
        return sum(self._paged(seq.prompt_tokens + seq.num_outputs - 1) for seq in retracted)

    # --- the life of a plan ---------------------------------------------------------------------

    def quiet_steps(self, limit: int) -> int:
        if not self._settled and len(self.queue):
            return 0
        head = self.short_head
        return limit if head is None or self._stays_short(head) else 0

    def _stays_short(self, head: Sequence) -> bool:
        """Whether `head` does not fit now, and so not later while the running batch only grows."""
        need = self._paged(head.prompt_tokens) + self._reserved
        left = self._pages.pool.available_tokens() - self._reserved * self._active
        return not self._pages.keeps_prefixes and need > left
