"""Allocators that store a sequence in contiguous buffers.

Nothing is touched per sequence per step. All decoders advance together, so a decoder that joined at
clock j with n slots holds n - j + clock of them. Its buffer of q slots is full at clock q - n + j:
a heap of such clocks says when the next buffer must grow. Between growths used grows and reserved
shrinks by one slot a decoder and step, and nothing else moves.

Slots outside a sliding window stay in the buffer, since a part of a buffer cannot be freed. The
ledger counts these slots as over-provisioned (left_behind.py).
"""

from operator import attrgetter

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    Demand,
    Growth,
    Place,
    Refusal,
)
from kvsim.memory.contiguous.buffer_sizes import BufferSizes
from kvsim.memory.contiguous.full_buffers import Buffer, FullBuffers
from kvsim.memory.contiguous.growing import BufferMoves
from kvsim.memory.contiguous.shape import BufferShape
from kvsim.memory.ledger import Course, Usage, check_sum, filling, split_free
from kvsim.memory.left_behind import LeftBehind, WindowedDecoder
from kvsim.memory.options import MemorySpec
from kvsim.memory.parts import LEFT_BEHIND, NO_PARTS, STATES, Parts
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import DecodeClock, Sequence

_order = attrgetter("order")


@mypyc_attr(allow_interpreted_subclasses=True)
class Contiguous(Allocator):
    """Allocator of contiguous buffers on an arena.

    sizes: policy for the slots of a buffer. moves: how a full buffer grows; None: it never does.
    """

    def __init__(
        self, memory: MemorySpec, sizes: BufferSizes, moves: BufferMoves | None = None
    ) -> None:
        whole = BufferShape.of(memory.layout)
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = whole.token_bytes
        self.sizes, self._places, self._moves = sizes, sizes.places, moves
        self.arena = sizes.places.arena
        self._whole = whole
        self._clock = DecodeClock()
        self._live: dict[Sequence, None] = {}
        self._wanted = 0  # sum of min(asked, final)
        self._over = 0  # sum of max(0, asked - final)
        self._granted = 0
        self._resting = 0  # valid slots of those that do not decode
        self._bases = 0  # sum of base of those that do
        self._num_decoding = 0
        self._behind = LeftBehind(memory.layout)
        self._full = FullBuffers()

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        return self.sizes.refusal(request)

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        # All tokens known so far must fit: a prompt computed in chunks does not grow its buffer.
        slots, fit_tokens = self.sizes.slots_for(seq, seq.num_tokens), demand.fit_tokens
        if fit_tokens > slots and self.arena.free_bytes < self._whole.bytes(fit_tokens):
            return None
        buffer = self._places.put(slots, seq.id)
        if buffer is None:
            return None
        seq.memory = buffer
        self._live[seq] = None
        self._book(seq, buffer, 1)
        self._fill(buffer, demand.num_tokens)
        buffer.computed = demand.cached_tokens
        return ADMITTED

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        if self._moves is not None:
            self._moves.check_ended()
        buffer: Buffer = seq.memory
        growth: Growth | None = GROWN
        if num_tokens > buffer.asked:
            growth = self._grow(seq, buffer, num_tokens)
        if growth is not None and buffer.ticket < 0:
            self._fill(buffer, num_tokens)
        return growth

    def _grow(self, seq: Sequence, buffer: Buffer, tokens: int) -> Growth | None:
        """Grow a buffer that is too small for `tokens`; None: no room, nothing changed."""
        if self._moves is None:
            raise InvariantError(f"{seq} needs {tokens} slots of a buffer of {buffer.asked}")
        slots = self.sizes.slots_for(seq, tokens)
        valid = self._clock.slots(seq) if buffer.ticket >= 0 else buffer.tokens
        self._book(seq, buffer, -1)
        growth = self._moves.grow(buffer, slots, valid, seq.id)
        self._book(seq, buffer, 1)
        if growth is not None and buffer.ticket >= 0:
            self._full.watch(seq, buffer, self._num_decoding)
        return growth

    def _fill(self, buffer: Buffer, num_tokens: int) -> None:
        self._resting += num_tokens - buffer.tokens
        buffer.computed, buffer.tokens = buffer.tokens, num_tokens

    def _book(self, seq: Sequence, buffer: Buffer, sign: int) -> None:
        """Add a buffer's requested and granted slots to the totals (sign 1), or subtract them (sign
        -1).
        """
        wanted = min(buffer.asked, seq.final_tokens)
        self._wanted += sign * wanted
        self._over += sign * (buffer.asked - wanted)
        self._granted += sign * buffer.granted

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        buffer: Buffer = seq.memory
        self._resting -= buffer.tokens
        buffer.joined = num_tokens
        self._bases += self._clock.join(seq, num_tokens)
        self._num_decoding += 1
        self._full.watch(seq, buffer, self._num_decoding)

    def leave(self, seq: Sequence) -> None:
        buffer: Buffer = seq.memory
        buffer.computed = self._decoder(seq).computed
        buffer.tokens = self._clock.slots(seq)
        buffer.ticket = -1
        self._resting += buffer.tokens
        self._bases -= seq.base
        self._num_decoding -= 1

    def must_extend(self) -> list[Sequence]:
        return sorted(self._full.full_at(self._clock.steps), key=_order)

    def steps_that_fit(self, limit: int) -> int:
        return self._full.steps_to_full(self._clock.steps, limit)

    def advance(self, steps: int) -> Course:
        course = Course(filling(self.token_bytes, self._num_decoding))
        if self._behind:
            decoders = (self._decoder(seq) for seq in self._live if seq.memory.ticket >= 0)
            course = self._behind.during(course, decoders, steps)
        self._clock.steps += steps
        return course

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        buffer: Buffer = seq.memory
        for address in buffer.regions:
            self.arena.free(address)
        self._book(seq, buffer, -1)
        self._resting -= buffer.tokens
        del self._live[seq]
        seq.memory = None

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        return seq.memory.asked if seq.memory else 0

    def place(self, seq: Sequence) -> Place:
        buffer: Buffer = seq.memory
        return Place(address=buffer.regions[0], slots=buffer.asked)

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        """Slots missing until `seq` has a buffer for `tokens`. The old buffer, which lives until it
        is copied, is not counted.
        """
        return max(0, self.sizes.slots_for(seq, tokens) - self.granted_tokens(seq))

    def sequence_bytes(self, tokens: int) -> int:
        return self._whole.bytes(tokens)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        token, state = self._whole.token_bytes, self._whole.state_bytes
        free, need, placeable = self.arena.free_bytes, None, True
        if head is not None:
            slots = self.sizes.slots_for(head, head.num_tokens)
            need = self._whole.bytes(slots)
            placeable = free >= need and self._places.has_place(slots)
        external, short, idle = split_free(free, 0, need, placeable)
        states = len(self._live) * state
        used = self._resting + self._bases + self._num_decoding * self._clock.steps
        asked = (self._wanted + self._over) * token + states
        behind = self._left_bytes()
        return Usage(
            used=used * token + states - behind,
            reserved=(self._wanted - used) * token,
            overprovisioned=self._over * token + behind,
            rounding=self._granted - asked,
            transient=self._transient_bytes,
            metadata=self.arena.metadata_bytes,
            external=external,
            short=short,
            idle=idle,
        )

    @property
    def _transient_bytes(self) -> int:
        """Bytes of an old buffer while its content is copied into a grown one."""
        return 0 if self._moves is None else self._moves.transient_bytes

    @property
    def copied_bytes(self) -> int:
        return 0 if self._moves is None else self._moves.copied_bytes

    @property
    def parts(self) -> Parts:
        left, states = self._left_bytes(), len(self._live) * self._whole.state_bytes
        if not (left or states):
            return NO_PARTS
        return tuple(each for each in ((LEFT_BEHIND, left), (STATES, states)) if each[1])

    def _left_bytes(self) -> int:
        """Bytes of slots outside sliding windows, summed over live sequences."""
        if not self._behind:
            return 0
        decoders = (self._decoder(seq) for seq in self._live)
        return sum(self._behind.bytes(decoder.computed) for decoder in decoders)

    def _decoder(self, seq: Sequence) -> WindowedDecoder:
        """The slots of a sequence, from which the slots outside its windows are computed."""
        buffer: Buffer = seq.memory
        if buffer.ticket < 0:
            return WindowedDecoder(buffer.computed, buffer.tokens)
        slots = self._clock.slots(seq)
        return WindowedDecoder(slots - 1 if slots > buffer.joined else buffer.computed, slots)

    def check(self) -> None:
        self.arena.check()
        buffers: list[tuple[Sequence, Buffer]] = [(seq, seq.memory) for seq in self._live]
        held = sum(self.arena.granted(address) for _, b in buffers for address in b.regions)
        if held != self._granted or held != sum(b.granted for _, b in buffers):
            raise InvariantError(f"granted {self._granted} bytes are booked, {held} are held")
        if sum(size for _, size in self.arena.live()) != held + self._transient_bytes:
            raise InvariantError("the arena holds a region that no sequence owns")
        used, watched = 0, set(self._full)
        for seq, buffer in buffers:
            decoding = buffer.ticket >= 0
            tokens = self._clock.slots(seq) if decoding else buffer.tokens
            used += tokens
            if not 0 <= tokens <= min(buffer.asked, seq.final_tokens):
                raise InvariantError(f"{seq} holds {tokens} of {buffer.asked} slots asked for")
            if decoding and seq not in watched:
                raise InvariantError(f"nobody watches the buffer of {seq}")
        booked = self._resting + self._bases + self._num_decoding * self._clock.steps
        if used != booked:
            raise InvariantError(f"{booked} slots are booked as used, {used} are")
        check_sum(self.usage(None, busy=False), self.capacity_bytes)
