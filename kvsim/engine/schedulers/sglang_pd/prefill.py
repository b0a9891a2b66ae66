"""The prefill side of an SGLang engine: prompts are computed, sent to a decode engine, and held
until they have arrived (disaggregation/prefill.py, 0.5.23).

A request waits in the bootstrap queue until the decode engine has allocated its whole prompt. No
request decodes on this engine: the first output token is sent with the KV.
"""

from collections.abc import Iterator

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.engine.schedulers.sglang.parts import EngineSide
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.schedulers.sglang_pd.budget import BUFFERS
from kvsim.engine.schedulers.sglang_pd.moves import Moves
from kvsim.engine.transfers.exchange import REFUSED, Exchange, Port, Transfer
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.sequence import Sequence


class PrefillSide(EngineSide):
    """The prefill side.

    bootstrapping: requests without memory on a decode engine yet. sending: computed requests with
    KV in flight. moves: transfer events since the last pass.
    """

    def __init__(self, pages: RadixAllocator, *, overlaps: bool) -> None:
        super().__init__()
        self._pages = pages
        self._overlaps = overlaps
        self.bootstrapping: dict[Sequence, Transfer] = {}
        self._unseen: list[Transfer] = []  # of requests that no pass has seen yet
        self._transfers: dict[Sequence, Transfer] = {}  # with a metadata buffer
        self.sending: dict[Sequence, Transfer] = {}
        self._computed_ps = 0  # when the steps before this plan have computed
        self.moves = Moves()
        self._next_moves = Moves()

    def attach(self, scheduler: SglangScheduler) -> None:
        """Set the scheduler of this side."""
        self._scheduler = scheduler

    def connect(self, exchange: Exchange, port: Port) -> None:
        """Set the transfers, and the port that wakes this engine; called before the run."""
        self._exchange, self._port = exchange, port

    @property
    def num_waiting(self) -> int:
        """Number of requests with memory on a decode engine that wait to be computed."""
        return len(self._scheduler.waiting) - len(self.bootstrapping)

    @property
    def busy(self) -> bool:
        return bool(self.sending)

    def takes(self, seq: Sequence) -> bool:
        transfer = self._exchange.to_send(seq.id, self._port)
        self.bootstrapping[seq] = transfer
        self._unseen.append(transfer)
        return True

    # --- a pass ---------------------------------------------------------------------------------

    def begin(self, plan: Plan) -> None:
        now_ps = self._port.now_ps
        self.moves, self._next_moves = self._next_moves, Moves()
        for transfer in self._unseen:
            self._exchange.ask(transfer, now_ps)
        self._unseen.clear()
        plan.left += self._free_what_arrived(now_ps)
        plan.failed += self._drop_at_door(now_ps)
        self._pop(now_ps)
        plan.failed += self._drop_waiting(now_ps)  # its metadata buffer is free for the next pass

    def end(self, plan: Plan) -> None:
        plan.finishing.clear()  # no request has left: its KV is yet to be sent
        if self._scheduler.hicache.loading:
            return  # pages found on the device may not be there yet (managers/scheduler.py)
        start_ps = max(self._port.now_ps + plan.held_ps, self._computed_ps)
        for chunk in plan.chunks:  # what a prefix cache had, or a chunk before: the link may work
            if chunk.prior_tokens % self._pages.page_tokens == 0:
                self._send(chunk.seq, chunk.prior_tokens, start_ps, self._next_moves)

    def _free_what_arrived(self, now_ps: int) -> Iterator[Sequence]:
        """Finish the requests with transferred KV; their tokens stay in the prefix cache."""
        for seq, transfer in list(self.sending.items()):
            if transfer.prefill_ended_ps <= now_ps:
                del self.sending[seq], self._transfers[seq]
                self._scheduler.leave(seq)
                self._scheduler.outputs.remove(seq)
                seen = self.moves.failed if transfer.lost else self.moves.freed
                seen.append(seq.id)
                yield seq

    def _drop_at_door(self, now_ps: int) -> Iterator[tuple[Sequence, str]]:
        """End requests in the bootstrap queue that timed out, or that the decode engine gave up;
        returns each with its error.
        """
        for seq, transfer in list(self.bootstrapping.items()):
            refused = transfer.refused_ps <= now_ps < transfer.allocated_ps
            if refused or transfer.prefill_ended_ps <= now_ps:
                del self.bootstrapping[seq]
                yield self._dropped(seq, transfer)

    def _drop_waiting(self, now_ps: int) -> Iterator[tuple[Sequence, str]]:
        """End requests with a transfer that failed before they were computed; returns each with its
        error.
        """
        for seq, transfer in list(self._transfers.items()):
            waits = seq not in self._scheduler.running and seq not in self.sending
            if transfer.prefill_ended_ps <= now_ps and waits:
                del self._transfers[seq]
                self._scheduler.waiting.remove(seq)
                yield self._dropped(seq, transfer)

    def _dropped(self, seq: Sequence, transfer: Transfer) -> tuple[Sequence, str]:
        """Drop `seq`, which holds no memory yet; returns it with its error."""
        self._scheduler.outputs.remove(seq)
        self.moves.failed.append(seq.id)
        return seq, transfer.failure or REFUSED

    def _pop(self, now_ps: int) -> None:
        """Queue requests for computing that now have memory on a decode engine."""
        waiting = self.bootstrapping
        for seq, transfer in list(waiting.items()):
            if len(self._transfers) >= BUFFERS * self._scheduler.most_running:
                break
            if transfer.allocated_ps <= now_ps:
                del waiting[seq]
                self._transfers[seq] = transfer
                self._scheduler.waiting.add(seq)
                self.moves.popped.append(seq.id)

    def joining(self, plan: Plan, prefilled: list[Sequence]) -> list[Sequence]:
        scheduler = self._scheduler
        self._computed_ps = scheduler.in_flight.end_ps if self._overlaps else 0
        chunked = scheduler.prompts.chunked
        if chunked is not None and not self._overlaps:
            whole = self._whole(chunked.num_computed)
            self._send(chunked, whole, self._port.now_ps, self.moves)
        return []

    def computed(self, chunk: ScheduledChunk) -> None:
        seq, now_ps = chunk.seq, self._port.now_ps
        if chunk.samples:
            self._pages.transferred.keep_for_reader(seq)
            self.sending[seq] = self._transfers[seq]
            self._send(seq, seq.prompt_tokens, now_ps, self._next_moves, last=True)
        elif self._overlaps:
            self._send(seq, self._whole(chunk.end_tokens), now_ps, self._next_moves)

    def _whole(self, tokens: int) -> int:
        """`tokens` rounded down to whole pages."""
        return tokens - tokens % self._pages.page_tokens

    def _send(
        self, seq: Sequence, upto: int, at_ps: int, moves: Moves, *, last: bool = False
    ) -> None:
        """Send those of the first `upto` tokens of `seq` that the decode engine lacks. last: the
        prompt is complete.
        """
        transfer = self._transfers[seq]
        tokens = max(0, upto - transfer.sent_tokens)
        if tokens or last:
            num_bytes = self._pages.sequence_bytes(tokens)
            sent = self._exchange.send(seq.id, transfer, tokens, num_bytes, at_ps, last=last)
            if sent is not None:
                moves.sent.append((seq.id, tokens, *sent))
