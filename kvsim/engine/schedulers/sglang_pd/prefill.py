"""SGLang's prefill engine: prompts are computed, sent to a decode engine, and kept until they have
arrived (disaggregation/prefill.py, 0.5.23).

A request waits at the door until the decode engine has room for its whole prompt. Nobody decodes
here: the one token that a prompt puts out travels with the KV.
"""

from collections.abc import Iterator

from kvsim.engine.plan import Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.sglang.queue import Inbox, SglangQueue
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.schedulers.sglang_pd.budget import BUFFERS
from kvsim.engine.schedulers.sglang_pd.moves import Moves
from kvsim.engine.transfers.exchange import REFUSED, Exchange, Port, Transfer
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.sequence import Sequence


class PrefillQueue(SglangQueue):
    """Requests that wait for room on the decode engine (bootstrapping), and then to be computed."""

    def __init__(self, inbox: Inbox, *, longest_prefix: bool) -> None:
        super().__init__(inbox, longest_prefix=longest_prefix)
        self.bootstrapping: dict[Sequence, Transfer] = {}

    def __len__(self) -> int:
        return super().__len__() + len(self.bootstrapping)


class SglangPrefillScheduler(SglangScheduler):
    """running: requests with KV memory, those among them that are computed and being sent
    (in_flight_transfers). moves: what happened since the last pass.
    """

    def __init__(
        self,
        allocator: RadixAllocator,
        max_model_len: int,
        policies: Policies,
        queue: PrefillQueue,
        *,
        max_running_requests: int | None,
        max_prefill_tokens: int,
        prefill_max_requests: int,
        chunked_prefill_size: int | None,
        conservativeness: float,
        overlaps: bool,
    ) -> None:
        super().__init__(
            allocator,
            max_model_len,
            policies,
            queue,
            max_running_requests=max_running_requests,
            max_prefill_tokens=max_prefill_tokens,
            prefill_max_requests=prefill_max_requests,
            chunked_prefill_size=chunked_prefill_size,
            conservativeness=conservativeness,
            mixed=False,
        )
        self._radix = allocator
        self.door = queue
        self._overlaps = overlaps
        self._unseen: list[Transfer] = []  # of requests that no pass has seen yet
        self._transfers: dict[Sequence, Transfer] = {}  # with a metadata buffer
        self.in_flight_transfers: dict[Sequence, Transfer] = {}
        self.moves = Moves()
        self._next_moves = Moves()

    def connect(self, exchange: Exchange, port: Port) -> None:
        """Connect the transfers, and the port that wakes this engine; called before the run."""
        self._exchange, self._port = exchange, port

    @property
    def expects_more(self) -> bool:
        return bool(self.in_flight_transfers)

    def add(self, seq: Sequence) -> bool:
        self._outputs.add(seq, self._limits.max_new_tokens(seq.request))
        transfer = self._exchange.to_send(seq.id, self._port)
        self.door.bootstrapping[seq] = transfer
        self._unseen.append(transfer)
        return True

    # --- a pass --------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        now_ps = self._port.now_ps
        self.moves, self._next_moves = self._next_moves, Moves()
        for transfer in self._unseen:
            self._exchange.ask(transfer, now_ps)
        self._unseen.clear()
        left = list(self._free_what_arrived(now_ps))
        failed = list(self._drop_at_door(now_ps))
        self._pop(now_ps)
        failed += self._drop_waiting(now_ps)  # its metadata buffer is free for the next pass
        plan = super().schedule()
        plan.left += left
        plan.failed += failed
        plan.finishing.clear()  # nobody has left: what was computed is yet to be sent
        start_ps = max(now_ps, self._in_flight_before_ps)
        for chunk in plan.chunks:  # what a prefix cache had, or a chunk before: the link may work
            if chunk.prior_tokens % self.allocator.page_tokens == 0:
                self._send(chunk.seq, chunk.prior_tokens, start_ps, self._next_moves)
        return plan

    def _free_what_arrived(self, now_ps: int) -> Iterator[Sequence]:
        """Finish the requests with transferred KV; the tokens they computed stay in the prefix
        cache.
        """
        for seq, transfer in list(self.in_flight_transfers.items()):
            if transfer.prefill_ended_ps <= now_ps:
                del self.in_flight_transfers[seq], self._transfers[seq]
                self._leave(seq)
                seen = self.moves.failed if transfer.lost else self.moves.freed
                seen.append(seq.id)
                yield seq

    def _drop_at_door(self, now_ps: int) -> Iterator[tuple[Sequence, str]]:
        """Requests end that no decode engine had room for in time, or kept room for."""
        for seq, transfer in list(self.door.bootstrapping.items()):
            refused = transfer.refused_ps <= now_ps < transfer.allocated_ps
            if refused or transfer.prefill_ended_ps <= now_ps:
                del self.door.bootstrapping[seq]
                yield self._dropped(seq, transfer)

    def _drop_waiting(self, now_ps: int) -> Iterator[tuple[Sequence, str]]:
        """End requests with a transfer that failed before they were computed."""
        for seq, transfer in list(self._transfers.items()):
            waits = seq not in self.running and seq not in self.in_flight_transfers
            if transfer.prefill_ended_ps <= now_ps and waits:
                del self._transfers[seq]
                self.waiting.remove(seq)
                yield self._dropped(seq, transfer)

    def _dropped(self, seq: Sequence, transfer: Transfer) -> tuple[Sequence, str]:
        """`seq` has no memory yet, and why it ends."""
        self._outputs.remove(seq)
        self.moves.failed.append(seq.id)
        return seq, transfer.failure or REFUSED

    def _pop(self, now_ps: int) -> None:
        """Requests for which the decode engine has room wait to be computed."""
        waiting = self.door.bootstrapping
        for seq, transfer in list(waiting.items()):
            if len(self._transfers) >= BUFFERS * self._max_running:
                break
            if transfer.allocated_ps <= now_ps:
                del waiting[seq]
                self._transfers[seq] = transfer
                self.waiting.add(seq)
                self.moves.popped.append(seq.id)

    def _settle(self) -> None:
        self._in_flight_before_ps = self._in_flight.end_ps if self._overlaps else 0
        self._in_flight.settle()
        self._full = False
        chunked = self._chunked
        if chunked is not None:
            self.allocator.checkpoint(chunked, chunked.num_computed)
            if not self._overlaps:
                whole = self._whole(chunked.num_computed)
                self._send(chunked, whole, self._port.now_ps, self.moves)
        self._prefilled = []
        self._left.clear()

    def finish(self, plan: Plan) -> list[Sequence]:
        self._in_flight.returned(plan)
        now_ps = self._port.now_ps
        for chunk in plan.chunks:
            seq = chunk.seq
            if chunk.samples:
                self.allocator.checkpoint(seq, chunk.end_tokens)
                self._radix.keep_for_reader(seq)
                self.in_flight_transfers[seq] = self._transfers[seq]
                self._send(seq, seq.prompt_tokens, now_ps, self._next_moves, last=True)
            elif self._overlaps:
                self._send(seq, self._whole(chunk.end_tokens), now_ps, self._next_moves)
        return []

    def _whole(self, tokens: int) -> int:
        """`tokens` cut to whole pages."""
        return tokens - tokens % self.allocator.page_tokens

    def _send(
        self, seq: Sequence, upto: int, at_ps: int, moves: Moves, *, last: bool = False
    ) -> None:
        """Send what of the first `upto` tokens of `seq` the decode engine lacks."""
        transfer = self._transfers[seq]
        tokens = max(0, upto - transfer.sent_tokens)
        if tokens or last:
            num_bytes = self.allocator.sequence_bytes(tokens)
            sent = self._exchange.send(seq.id, transfer, tokens, num_bytes, at_ps, last=last)
            if sent is not None:
                moves.sent.append((seq.id, tokens, *sent))
