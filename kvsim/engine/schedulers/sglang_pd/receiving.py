"""Room for whole prompts at a decode engine of SGLang's, and what arrives in it
(disaggregation/decode.py, 0.5.23).
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
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence

HOST_RATIO = 0.2  # of the pool, where that holds one of the longest requests
ROW_TOKENS = 4  # of a request's row beyond max_model_len
MOST_FOR_EXTRA_ROWS = 32  # running requests up to which there are extra rows


class ReceivingScheduler(DecodingScheduler):
    """The part of a decode engine's scheduler that promises room and takes over what has arrived.

    running: requests that decode. moves: what happened since the last pass.
    """

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
        """Tokens of host memory for retracted requests, in whole pages; None without limit: an
        engine with a prefix cache copies to memory that it does not set apart.
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
        """Where transfers are found, how this engine is woken, and how long copies to host memory
        take; before anything runs.
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

    # --- room for prompts, and what arrives ----------------------------------------------------

    def _preallocate(self, now_ps: int) -> None:
        """Promise room for whole prompts in the order of the queue, but for those whose receivers
        are not ready; the first that does not fit ends it.
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
        """Prompts whose KV is there wait for a place; those whose transfer failed end."""
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
        """Requests for whose outputs tokens are held back."""
        return len(self.decoders) + len(self.queue.transferring) + len(self.queue.ready)

    @property
    def _free_rows(self) -> int:
        queue = self.queue
        return self._rows - len(self.running) - queue.num_buffers - len(queue.ready)
