"""Forecast of the blocks that decoders allocate and free in each step, and of the ledger's changes.

A decoder with a window of W tokens frees a block in a step whenever computed - W + 1 is a multiple
of the block size. This begins once a block is before the window. Here computed is the number of its
slots without those in flight. All decoders advance together, so these steps are periodic, and the
decoders are grouped by residue, as in cohorts.py. Steps outside the period are stored by clock. One
is the step in which a window first leaves the start of its sequence. Another is the step after a
prompt, which frees all blocks outside of the window at once. A step at the end of a chunk of local
attention frees all blocks of the chunk.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from kvsim.memory.ledger import (
    CACHED,
    IDLE,
    OVERPROVISIONED,
    RESERVED,
    ROUNDING,
    USED,
    Course,
    Jumps,
    course_of,
    filling,
)
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.memory.paged.blocks import OUTPUT, STATE, WINDOW
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.tables import BlockTables
from kvsim.memory.paged.windows import Reach, TableShapes, skipped_blocks
from kvsim.memory.parts import CACHED_OUTPUTS, CACHED_STATES, CACHED_WINDOWS, STATES
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence
from kvsim.vllm.sizes import Sizes

Bucket = dict[Sequence, None]
Slide = tuple[Reach, int]  # a window, and tokens of a block there
NEVER = 1 << 62
# Books that few runs of steps change, and what they are in the ledger or of its parts.
USED_BYTES, OVER_BYTES, PAD_BYTES, STATE_BYTES, KEPT_WINDOWS, KEPT_STATES = range(6)
CLASS_OF_BOOK = {USED_BYTES: USED, OVER_BYTES: OVERPROVISIONED, PAD_BYTES: ROUNDING}
PART_OF_BOOK = {
    STATE_BYTES: STATES,
    KEPT_WINDOWS: CACHED_WINDOWS,
    KEPT_STATES: CACHED_STATES,
}


class Windows:
    """The decoders with sliding windows, by the clock at which each frees blocks; `base` is slots
    minus clock, as in cohorts.py.
    """

    def __init__(self, reaches: Iterable[Reach | None], sizes: Iterable[int], lag: int) -> None:
        self._lag = lag
        self._groups: dict[Slide, list[int]] = {}  # groups by slide
        self._first_of: dict[Slide, int] = {}  # one group of each window and chunk
        self._chunk_ends: dict[int, dict[int, Bucket]] = {}  # by tokens of a chunk and clock
        for g, (reach, size) in enumerate(zip(reaches, sizes, strict=True)):
            if reach is None:
                continue
            self._first_of.setdefault((reach, size), g)
            if reach.chunked:
                self._chunk_ends.setdefault(reach.tokens, {})
            else:
                self._groups.setdefault((reach, size), []).append(g)
        self._rhythm: dict[Slide, list[Bucket]] = {
            slide: [{} for _ in range(slide[1])] for slide in self._groups
        }
        self._ripening: list[tuple[int, int, int, Slide, int, Sequence]] = []
        self._once: dict[int, Bucket] = {}

    def join(self, seq: Sequence, base: int, clock: int, skipped: list[int]) -> None:
        """`seq` decodes from the step at `clock` on. skipped: blocks that it has freed, by
        group.
        """
        for nth, slide in enumerate(self._groups):
            ripe = slide[0].tokens + self._lag - base
            if ripe <= clock:
                self._bucket(slide, base)[seq] = None
            else:
                heappush(self._ripening, (ripe, seq.order, nth, slide, base, seq))
        for chunk_tokens, ends in self._chunk_ends.items():
            end = clock + (self._lag - base - clock) % chunk_tokens
            ends.setdefault(end, {})[seq] = None
        if any(
            skipped_blocks(reach, base + clock, size) > skipped[g]
            for (reach, size), g in self._first_of.items()
        ):
            for late in range(self._lag + 1):
                self._once.setdefault(clock + late, {})[seq] = None

    def leave(self, seq: Sequence, base: int) -> None:
        """`seq` stops decoding."""
        for slide in self._groups:
            self._bucket(slide, base).pop(seq, None)
        for buckets in (self._once, *self._chunk_ends.values()):
            for bucket in buckets.values():
                bucket.pop(seq, None)

    def _bucket(self, slide: Slide, base: int) -> Bucket:
        window, size = slide
        return self._rhythm[slide][(base - self._lag - window.kept_tokens) % size]

    def givers(self, clock: int) -> Bucket:
        """Sequences that may free blocks in the step at `clock`."""
        self._ripen(clock)
        found: Bucket = dict(self._once.get(clock, ()))
        for ends in self._chunk_ends.values():
            found.update(ends.get(clock, ()))
        for buckets in self._rhythm.values():
            found.update(buckets[-clock % len(buckets)])
        return found

    def passed(self, clock: int) -> None:
        """Drop the plan for the step at `clock`, which is over."""
        self._once.pop(clock, None)
        for chunk_tokens, ends in self._chunk_ends.items():
            ended = ends.pop(clock, None)
            if ended:
                ends.setdefault(clock + chunk_tokens, {}).update(ended)

    def num_given(self, clock: int) -> int:
        """Number of blocks freed periodically in the step at `clock`, if no block is shared."""
        return sum(
            len(buckets[-clock % len(buckets)]) * len(self._groups[slide])
            for slide, buckets in self._rhythm.items()
        )

    def irregular(self, clock: int) -> bool:
        """Whether a sequence frees blocks outside its period in the step at `clock`."""
        return any(buckets.get(clock) for buckets in (self._once, *self._chunk_ends.values()))

    def steady_steps(self, clock: int) -> int:
        """Number of steps from `clock` on for which the periods of freed blocks do not change; the
        first step may differ.
        """
        self._ripen(clock)
        ripening = self._ripening
        while ripening and not _stands(ripening[0]):
            heappop(ripening)
        next_clock = NEVER
        for buckets in (self._once, *self._chunk_ends.values()):
            ahead = [later for later, bucket in buckets.items() if later > clock and bucket]
            next_clock = min(next_clock, *ahead, NEVER)
        if ripening:
            next_clock = min(next_clock, ripening[0][0])
        return next_clock - clock

    def _ripen(self, clock: int) -> None:
        """Make sequences periodic if their window has left the start by `clock`."""
        while self._ripening and self._ripening[0][0] <= clock:
            entry = heappop(self._ripening)
            if _stands(entry):
                _, _, _, slide, base, seq = entry
                self._bucket(slide, base)[seq] = None


def _stands(entry: tuple[int, int, int, Slide, int, Sequence]) -> bool:
    """Whether a heap entry is current: its decoder has not left (or left and joined again)."""
    _, order, _, _, base, seq = entry
    return seq.decoding and seq.order == order and seq.memory.base == base


class Forecast:
    """Predicts how many blocks are free after further decode steps; changes nothing."""

    def __init__(
        self,
        pool: BlockPool,
        shapes: TableShapes,
        decoders: Decoders,
        windows: Windows,
        sizes: Sizes,
    ) -> None:
        self._pool, self._shapes = pool, shapes
        self._decoders, self._windows = decoders, windows
        self._sizes = sizes

    def _moves(self, limit: int) -> Iterator[tuple[int, int]]:
        """(blocks taken, blocks freed) in each step from now on, for at most `limit` steps and
        while windows free blocks at the same rate. Freed blocks may still be held by other
        sequences.
        """
        clock, each = self._decoders.clock, self._shapes.most_new_blocks
        uniform = self._sizes.unit == self._sizes.whole
        for later in range(clock, clock + min(limit, self._windows.steady_steps(clock))):
            members = self._decoders.at(later)
            given = self._windows.num_given(later)
            if later == clock and self._decoders.extended:
                members = {s: None for s in members if s not in self._decoders.extended}
                given = 0
            if uniform:
                yield each * len(members), given
            else:
                new_blocks = self._shapes.new_blocks
                yield sum(new_blocks(seq.memory.base + later) for seq in members), given

    def steps_that_fit(self, limit: int) -> int:
        """Number of steps for which blocks suffice even if all are taken before any is freed."""
        starts = self._decoders.num * ceil_div(limit, self._sizes.unit)
        spare = self._pool.num_free
        if starts * self._shapes.most_new_blocks <= spare:
            return limit
        fitting = 0
        for taken, given in self._moves(limit):
            if taken > spare:
                break
            fitting += 1
            spare -= taken
            if not self._pool.num_shared:
                spare += given
        return fitting

    def steps_head_stays_blocked(self, spare: int, limit: int, *, delicate: bool) -> int:
        """Number of steps, at most `limit`, during which the queue's head stays short of blocks, or
        stays not short. spare: free blocks beyond its need, negative if short. delicate: stop when
        a block is taken or freed.
        """
        if spare < 0 and self._windows.irregular(self._decoders.clock):
            return 0
        steps, enough = 0, spare >= 0
        for taken, given in self._moves(limit):
            spare -= taken
            if not (enough and self._pool.num_shared):
                spare += given
            if (spare >= 0) != enough or (delicate and (taken or given)):
                break
            steps += 1
        return steps


class BlockMoves:
    """The change of the ledger in one `advance`: reads the totals after each step in which blocks
    were taken or freed.

    slope: number of slots of token_bytes that decoders fill in a step. gives_back: blocks are also
    freed during the steps, so that more may be held before the end than at the end.
    """

    def __init__(
        self,
        shape: BlockShape,
        pool: BlockPool,
        tables: BlockTables,
        token_bytes: int,
        slope: int,
        *,
        gives_back: bool,
    ) -> None:
        self._shape, self._pool, self._tables = shape, pool, tables
        self._token_bytes, self._slope, self._gives_back = token_bytes, slope, gives_back
        self._used_rise = self._allocated_rise = 0
        self._free_before, self._used_before = pool.num_free, tables.used_bytes
        self._free = Jumps(pool.num_free)
        self._cached = Jumps(pool.num_cached_free)
        self._outputs = Jumps(pool.kept[OUTPUT])
        # Of the other books the last values, and the gains of those that changed.
        self._used, self._over = tables.used_bytes, tables.over_bytes
        self._pad, self._states = tables.pad_bytes, tables.state_bytes
        self._kept = pool.kept.copy()
        self._gains: dict[int, Jumps] = {}

    def at(self, t: int) -> None:
        """Record that blocks were taken or freed at step t."""
        pool, tables = self._pool, self._tables
        if self._gives_back:
            rise = self._used - self._used_before + self._token_bytes * self._slope * (t - 1)
            self._used_rise = max(self._used_rise, rise)
            rise = (self._free_before - pool.num_free) * self._shape.block_bytes
            self._allocated_rise = max(self._allocated_rise, rise)
        # Unchanged books are skipped here: this is called in every step that takes blocks.
        if pool.num_free != self._free.value:
            self._free.read(pool.num_free, t)
        if pool.num_cached_free != self._cached.value:
            self._cached.read(pool.num_cached_free, t)
        if tables.used_bytes != self._used:
            self._gain(USED_BYTES, tables.used_bytes - self._used, t)
            self._used = tables.used_bytes
        if tables.over_bytes != self._over:
            self._gain(OVER_BYTES, tables.over_bytes - self._over, t)
            self._over = tables.over_bytes
        if tables.pad_bytes != self._pad:
            self._gain(PAD_BYTES, tables.pad_bytes - self._pad, t)
            self._pad = tables.pad_bytes
        if tables.state_bytes != self._states:
            self._gain(STATE_BYTES, tables.state_bytes - self._states, t)
            self._states = tables.state_bytes
        kept = pool.kept
        if kept != self._kept:
            before, self._kept = self._kept, kept.copy()
            self._outputs.read(kept[OUTPUT], t)
            if kept[WINDOW] != before[WINDOW]:
                self._gain(KEPT_WINDOWS, kept[WINDOW] - before[WINDOW], t)
            if kept[STATE] != before[STATE]:
                self._gain(KEPT_STATES, kept[STATE] - before[STATE], t)

    def _gain(self, book: int, gain: int, t: int) -> None:
        jumps = self._gains.get(book)
        if jumps is None:
            jumps = self._gains[book] = Jumps()
        jumps.add(gain, t)

    def course(self) -> Course:
        """The change of the ledger over the whole `advance`."""
        size = self._shape.block_bytes
        moves = filling(self._token_bytes, self._slope)
        moves += self._free.move(RESERVED, IDLE, size)
        moves += self._cached.move(IDLE, CACHED, size)
        parts = self._outputs.part(CACHED_OUTPUTS, size)
        for book, jumps in sorted(self._gains.items()) if self._gains else ():
            if book in CLASS_OF_BOOK:
                moves += jumps.move(RESERVED, CLASS_OF_BOOK[book])
            else:
                parts += jumps.part(PART_OF_BOOK[book], 1 if book == STATE_BYTES else size)
        return course_of(moves, self._used_rise, self._allocated_rise, parts)
