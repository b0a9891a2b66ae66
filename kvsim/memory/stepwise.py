"""A base for new allocators: a subclass only defines the memory granted to a sequence.

A subclass implements `grant`, the memory of a sequence of `tokens` tokens. Whether a sequence fits,
the ledger, and its change while sequences decode are derived here, one step and one sequence at a
time. This is exact, but slow compared to the allocators that count in closed form; an allocator
that must be fast implements kvsim.memory.allocator itself.
"""

from abc import abstractmethod
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import ADMITTED, GROWN, Admission, Allocator, Demand, Growth, Refusal
from kvsim.memory.ledger import Course, Jumps, LedgerJumps, Usage, check_sum, split_free
from kvsim.memory.left_behind import LeftBehind
from kvsim.memory.options import MemorySpec
from kvsim.memory.parts import LEFT_BEHIND, NO_PARTS, Parts
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


class Grant(NamedTuple):
    """The memory granted to a sequence: `slots` slots, which cost `granted_bytes` of the pool
    (slots * token_bytes, or more if sizes are rounded).
    """

    slots: int
    granted_bytes: int


class Holding:
    """The memory of one live sequence: its grant, its valid slots, and whether it decodes.
    computed: valid slots before its last step.
    """

    __slots__ = ("computed", "decoding", "grant", "tokens")

    def __init__(self, grant: Grant, tokens: int) -> None:
        self.grant = grant
        self.tokens = tokens
        self.computed = 0
        self.decoding = False


@mypyc_attr(allow_interpreted_subclasses=True)
class StepwiseAllocator(Allocator):
    """Allocator of one grant for each sequence, in one pool. Grants grow without a copy; nothing is
    shared.

    metadata_bytes: bytes of the pool that no request can have.
    """

    def __init__(self, memory: MemorySpec, metadata_bytes: int = 0) -> None:
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = memory.layout.bytes_per_token
        self._max_model_len = memory.max_model_len
        self._metadata_bytes = metadata_bytes
        self._free_bytes = memory.capacity_bytes - metadata_bytes
        self._live: dict[Sequence, Holding] = {}
        self._behind = LeftBehind(memory.layout)

    @abstractmethod
    def grant(self, tokens: int) -> Grant:
        """The grant of a sequence of `tokens` >= 1 tokens; never less for more tokens."""

    # --- requests and admission ----------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        final = request.final_tokens
        need, limit = self.grant(final).granted_bytes, self.capacity_bytes - self._metadata_bytes
        if need <= limit:
            return None
        return Refusal(
            "it needs more memory than the pool has",
            need,
            limit,
            "bytes",
            "shorten the request or enlarge the pool",
        )

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        if self.grant(demand.fit_tokens).granted_bytes > self._free_bytes:
            return None
        grant = self.grant(demand.num_tokens)
        self._free_bytes -= grant.granted_bytes
        self._live[seq] = seq.memory = Holding(grant, demand.num_tokens)
        return ADMITTED

    # --- growth and decoding -------------------------------------------------------------------

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        holding = self._live[seq]
        if num_tokens > holding.grant.slots:
            grant = self.grant(num_tokens)
            more_bytes = grant.granted_bytes - holding.grant.granted_bytes
            if more_bytes > self._free_bytes:
                return None
            self._free_bytes -= more_bytes
            holding.grant = grant
        if not holding.decoding:
            holding.computed, holding.tokens = holding.tokens, num_tokens
        return GROWN

    def join(self, seq: Sequence, num_tokens: int) -> None:
        self._live[seq].decoding = True

    def leave(self, seq: Sequence) -> None:
        self._live[seq].decoding = False

    def _decoding(self) -> list[Holding]:
        return [holding for holding in self._live.values() if holding.decoding]

    def must_extend(self) -> list[Sequence]:
        full = (
            seq
            for seq, holding in self._live.items()
            if holding.decoding and holding.tokens == holding.grant.slots
        )
        return sorted(full, key=lambda seq: seq.order)

    def steps_that_fit(self, limit: int) -> int:
        return min([limit, *(each.grant.slots - each.tokens for each in self._decoding())])

    def advance(self, steps: int) -> Course:
        ledger = LedgerJumps(self.usage(None, busy=True))
        behind = Jumps(self._left_bytes())
        for t in range(1, steps + 1):
            self._step()
            ledger.read(self.usage(None, busy=True), t)
            behind.read(self._left_bytes(), t)
        return ledger.course(parts=behind.part(LEFT_BEHIND))

    def _step(self) -> None:
        """Every decoder takes one slot."""
        for holding in self._decoding():
            holding.computed = holding.tokens
            holding.tokens += 1
            if holding.tokens > holding.grant.slots:
                raise InvariantError(f"a decoder fills slot {holding.tokens} of {holding.grant}")

    # --- release and the ledger ----------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        self._free_bytes += self._live.pop(seq).grant.granted_bytes
        seq.memory = None

    def granted_tokens(self, seq: Sequence) -> int:
        return self._live[seq].grant.slots if seq in self._live else 0

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        return max(0, self.grant(tokens).slots - self.granted_tokens(seq))

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        """The ledger: see kvsim.memory.ledger for n, q, g and F of the classes."""
        used = reserved = over = granted = asked = 0
        for seq, holding in self._live.items():
            n, q, final = holding.tokens, holding.grant.slots, seq.final_tokens
            used += n
            reserved += max(0, min(q, final) - n)
            over += max(0, q - max(n, final))
            asked += q
            granted += holding.grant.granted_bytes
        need = None if head is None else self.grant(head.num_tokens).granted_bytes
        behind = self._left_bytes()
        external, short, idle = split_free(self._free_bytes, 0, need, placeable=True)
        return Usage(
            used=used * self.token_bytes - behind,
            reserved=reserved * self.token_bytes,
            overprovisioned=over * self.token_bytes + behind,
            rounding=granted - asked * self.token_bytes,
            metadata=self._metadata_bytes,
            external=external,
            short=short,
            idle=idle,
        )

    @property
    def parts(self) -> Parts:
        left = self._left_bytes()
        return ((LEFT_BEHIND, left),) if left else NO_PARTS

    def _left_bytes(self) -> int:
        """Bytes outside sliding windows, summed over all sequences."""
        if not self._behind:
            return 0
        return sum(self._behind.bytes(each.computed) for each in self._live.values())

    def check(self) -> None:
        check_sum(self.usage(None, busy=False), self.capacity_bytes)
        for seq, holding in self._live.items():
            if seq.memory is not holding or not 0 <= holding.tokens <= holding.grant.slots:
                raise InvariantError(f"{seq} holds {holding.tokens} of {holding.grant}")
