"""KV memory of SGLang (0.5.23): pages of one pool, and a radix tree over tokens.

Options add a second pool (windows, recurrent states) and host memory as L2.

The content of a sequence is its own until the scheduler reports that the step has returned
(`checkpoint`), or until it ends. Then the tree takes it over, in whole pages, and slots with
content that the tree had already are freed. The tree keeps its part of a preempted sequence. Pages
are counted, without numbers. The owner of the clock submits copies to host memory and back, and
reports their ends; this module models their effect on both memories.

No cost grows with sequences per step, or with tokens: content is kept as runs. With a second pool
steps are taken one by one.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    CacheTotals,
    Demand,
    Growth,
    Refusal,
)
from kvsim.memory.ledger import Course, LedgerJumps, Usage
from kvsim.memory.parts import ARRIVING, IN_TRANSIT, KEPT_FOR_READERS, NO_PARTS, Parts
from kvsim.memory.prefix_room import Known, PrefixRoom, WindowRoom
from kvsim.memory.radix.decoders import PageMoves, RadixDecoders
from kvsim.memory.radix.hicache.backup import Backup
from kvsim.memory.radix.holds import Holds, Slots
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.radix_host import RadixHost, out_of_host
from kvsim.memory.radix.second_memory import SecondMemory, no_second_memory
from kvsim.memory.radix.second_pool import Places
from kvsim.memory.radix.tree import Match, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence


class Keeper(Protocol):
    """Is notified when pages of sequences change owner."""

    def filing(self, seq: Sequence, tokens: int) -> None:
        """The tree is about to take over the first `tokens` own tokens of `seq`, known or not."""

    def released(self, seq: Sequence) -> None:
        """The remaining own pages of `seq` are free."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RadixAllocator(Allocator, PrefixRoom):
    """caching: finished content is cached. free: tokens of free pages. tree: known content;
    unlocked content counts as cached. second: what sequences hold of a second pool, in the bytes of
    capacity_bytes that are not slots. backup: copies to host memory, of host_tokens;
    write_threshold: see there. host_hit_tokens: loaded from there for hits. keeper: notified of
    pages that change owner. pool_tokens: slots of the pool; not given: as many as the bytes hold.
    """

    keeps_last_token: ClassVar[bool] = True

    def __init__(
        self,
        capacity_bytes: int,
        token_bytes: int,
        page_size: int,
        *,
        caching: bool = True,
        max_sequences: int | None = None,
        pool_tokens: int | None = None,
        second: SecondMemory | None = None,
        host_tokens: int = 0,
        write_threshold: int | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.token_bytes = token_bytes
        self.page_tokens = page_size
        self.keeps_prefixes = caching
        self.max_sequences = max_sequences
        if pool_tokens is None:
            pool_tokens = capacity_bytes // (page_size * token_bytes) * page_size
        self.pool_tokens = pool_tokens
        self.free = self.pool_tokens
        self.second = no_second_memory(page_size) if second is None else second
        self.tree = RadixTree(page_size, self.second.part, RadixHost(host_tokens))
        self.backup = Backup(self.tree, write_threshold)
        self.keeper: Keeper | None = None
        self._holds = Holds(self.tree, self.backup, grid=self.second.grid, caching=caching)
        self._decoders = RadixDecoders(page_size)
        self._live: dict[Sequence, Slots] = {}
        self._expected: dict[Sequence, Slots] = {}  # content being transferred
        self._kept: dict[Sequence, Slots] = {}  # not read yet by another engine
        self._begun = False  # the step of a second pool that is being scheduled
        self._valid = 0  # valid slots beside the tree, of all live sequences
        self._over = 0  # slots of last pages never to be filled
        self._query_tokens = 0
        self._hit_tokens = 0
        self.host_hit_tokens = 0
        self.second.attach(self._decoders, self._holds, self._live, self._make_second_room)

    def _pages(self, tokens: int) -> int:
        """Slots of the pages that `tokens` tokens take."""
        return ceil_div(tokens, self.page_tokens) * self.page_tokens

    def _whole(self, tokens: int) -> int:
        """`tokens` cut to whole pages."""
        return tokens - tokens % self.page_tokens

    def available_tokens(self) -> int:
        """Slots that can be allocated now: free and evictable ones."""
        return self.free + self.tree.evictable

    def _missing(self, hit: Match, tokens: int) -> int:
        """Available slots that a waiting sequence takes to hold `tokens` tokens."""
        return self._pages(tokens) - hit.tokens + hit.unlocked

    # --- content -------------------------------------------------------------------------------

    def slots(self, seq: Sequence) -> Slots:
        """The record of `seq`."""
        return self._holds.slots(seq)

    def cached_tokens(self, seq: Sequence) -> int:
        return self._holds.hit(seq).tokens

    def look_up(self, seq: Sequence) -> Known:
        return self._holds.look_up(seq)

    def anchor(self, seq: Sequence) -> tuple[Node, int]:
        """The node where the known prefix of a waiting `seq` ends, in either memory, and its number
        of tokens.

        It counts as used.
        """
        found = self.tree.look_up(self.slots(seq).content, seq.num_tokens - 1)
        return found.node, found.tokens

    def pin(self, seq: Sequence) -> int:
        cached = self._holds.pin(seq)
        self.second.pinned(self.slots(seq))
        return cached

    def unpin(self, seq: Sequence) -> None:
        slots = self._holds.pinned.pop(seq)
        self.second.unpinned(slots)
        self._holds.let_go(slots)

    def extend_pin(self, seq: Sequence, node: Node, tokens: int) -> None:
        """`tokens` tokens more, down to `node`, are on the device for a pinned `seq`; their slots
        are taken.
        """
        self.free -= tokens
        self._holds.extend(self.slots(seq), node, tokens)

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if self.keeps_prefixes:
            slots = self._live[seq]
            upto = self.second.to_file(slots, num_tokens)
            if upto is not None:
                self.second.filed(slots, self._file(seq, slots, upto), num_tokens)

    def _file(self, seq: Sequence, slots: Slots, upto: int) -> Places:
        """The tree takes over the first `upto` tokens of a live sequence, in whole pages, which
        locks them.
        """
        whole, before = self._whole(upto), slots.protected
        if self.keeper is not None:
            self.keeper.filing(seq, whole - before)
        places = Places(before, whole, slots.cursor)
        self.free += self._holds.file(slots, places, self._whole(seq.prompt_tokens))
        self._valid -= whole - before
        return places

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        need = self._pages(request.final_tokens)
        if need <= self.pool_tokens:
            return None
        return Refusal(
            "it needs more KV pages than the pool has",
            need // self.page_tokens,
            self.pool_tokens // self.page_tokens,
            f"pages of {self.page_tokens} tokens",
            "shorten the request or enlarge the pool",
        )

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        holds, second = self._holds, self.second
        if len(self._live) == self.max_sequences:
            return None
        pinned_here = second.pinned_first and seq not in holds.pinned
        if pinned_here:
            cached = self.pin(seq)
            if cached != demand.cached_tokens:
                raise InvariantError(f"{seq} hits {cached} tokens, not {demand.cached_tokens}")
        fits = self._missing(holds.hit(seq), demand.fit_tokens) <= self.available_tokens()
        if not fits or not second.fits(self.slots(seq), self._pages(demand.fit_tokens)):
            if pinned_here:
                self.unpin(seq)
            return None
        if seq not in holds.pinned:
            holds.pin(seq)
        slots = self._live[seq] = holds.pinned.pop(seq)
        slots.tokens = slots.granted = slots.protected
        if self.tree.listener is not None and slots.node is not None:
            self.tree.listener.hit(slots.protected, slots.node.depth)
        self._grow(seq, slots, demand.num_tokens)
        if not seq.num_preemptions:
            self._query_tokens += seq.num_tokens
            self._hit_tokens += demand.cached_tokens
            self.host_hit_tokens += slots.loaded
        second.admitted(slots)
        return ADMITTED

    def make_room(self, tokens: int) -> None:
        if self.free < tokens:
            self.free += self.tree.evict(tokens - self.free)
        self._make_second_room(self.second.units_of(tokens))

    def _make_second_room(self, units: int) -> None:
        """Evict the oldest content of the second pool until `units` units are free."""
        if units > self.second.part.free:
            self.free += self.tree.make_second_room(units)

    def _take(self, tokens: int) -> None:
        self.make_room(tokens)
        self.free -= tokens
        if self.free < 0:
            raise self._lack(f"{tokens} tokens taken from {self.free + tokens} free ones")
        self.second.take(tokens)

    def _lack(self, fault: str) -> Exception:
        """The exception for a lack of pages: a fault of kvsim's, or an error that ends SGLang."""
        return out_of_host(self.tree.host) if self.tree.stuck else InvariantError(fault)

    def _grow(self, seq: Sequence, slots: Slots, num_tokens: int) -> None:
        """Grant the first `num_tokens` slots to a sequence that does not decode; they are valid."""
        granted, begin = max(slots.granted, self._pages(num_tokens)), slots.tokens
        self._take(granted - slots.granted)
        self._valid += num_tokens - begin
        slots.tokens, slots.granted = num_tokens, granted
        self._count_over(seq, slots, granted)
        self.second.grown(slots, begin, num_tokens)

    def _count_over(self, seq: Sequence, slots: Slots, granted: int) -> None:
        """Count the slots of a last page that the sequence will never fill."""
        over = max(0, granted - max(slots.tokens, seq.final_tokens))
        self._over += over - slots.over
        slots.over = over

    # --- content from elsewhere ----------------------------------------------------------------

    def expect(self, seq: Sequence, num_tokens: int) -> None:
        """Take pages for the first `num_tokens` slots of a waiting sequence, the content of which
        is being transferred; of a pinned one without its hits. There must be room.
        """
        slots = self._live[seq] = self._holds.held(seq)
        slots.tokens = slots.granted = slots.protected
        granted = self._pages(num_tokens)
        self._take(granted - slots.granted)
        slots.granted = granted
        self._count_over(seq, slots, granted)
        self._expected[seq] = slots

    def arrived(self, seq: Sequence, num_tokens: int) -> None:
        """The first `num_tokens` slots of an expected sequence are valid now."""
        self._grow(seq, self._expected.pop(seq), num_tokens)

    def give_up(self, seq: Sequence) -> None:
        """The content of an expected sequence will not come: its pages are free."""
        del self._expected[seq]
        self.release(seq)

    def keep_for_reader(self, seq: Sequence) -> None:
        """`seq` is computed; it keeps its memory until another engine has read it."""
        self._kept[seq] = self._live[seq]

    # --- where layers do not all keep all tokens -------------------------------------------------

    @property
    def windows(self) -> WindowRoom | None:
        return self.second.windows

    @property
    def steps_on_its_own(self) -> bool:
        return self.second.in_steps or (self._writes_back and bool(self.tree.evictable))

    @property
    def _writes_back(self) -> bool:
        return self.tree.host.write_first is not None

    def tokens_for_step(self) -> int:
        if self.tree.host.tokens:
            # What could be evicted was, when room was made; other tokens may count as evictable,
            # but have something below them that a copy needs.
            return self.second.room(self.free)
        return self.second.room(self.available_tokens())

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        self.second.begin_prefill(chunked, newcomers)

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        self._begun = True
        self.second.begin_decode(stopping, unreturned=unreturned, rides=rides)

    def step_scheduled(self, order: Callable[[Sequence], int]) -> None:
        self.second.step_scheduled(order)

    def step_returned(self) -> None:
        self.second.step_returned()

    # --- growth and decoding -------------------------------------------------------------------

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        slots = self._live[seq]
        granted = self._decoders.granted(seq, slots)
        need = self._pages(num_tokens) - granted
        if need > self.second.room(need):
            return None
        if not seq.decoding:
            slots.chunks += 1
        if need > self.available_tokens():
            return None
        if not seq.decoding:
            self._grow(seq, slots, num_tokens)
        elif need > 0:
            self._take(need)
            self._decoders.extended[seq] = None
            self._count_over(seq, slots, granted + need)
        return GROWN

    def join(self, seq: Sequence, num_tokens: int) -> None:
        slots = self._live[seq]
        self._decoders.join(seq, slots)
        slots.joined = num_tokens
        self.second.joined(seq, slots)

    def leave(self, seq: Sequence) -> None:
        self._decoders.leave(seq, self._live[seq])

    def must_extend(self) -> list[Sequence]:
        return self._decoders.without_room()

    def missing_for_step(self, slots: Callable[[Sequence], int]) -> int:
        return self._decoders.num_without_room * self.page_tokens

    def steps_that_fit(self, limit: int) -> int:
        pages = self.second.room(self.available_tokens()) // self.page_tokens
        return self.second.steps_alike(self._decoders.steps_within(pages, limit))

    def steps_without_copies(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, for which nothing is written to make room."""
        if not self._writes_back or not self.tree.evictable:
            return limit
        return self._steps_without_eviction(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """See `Allocator`.

        Evictions do not change what the head lacks, as it computes what it cannot hit. Exceptions:
        nothing is free now, so evictions are not recorded. Or the head is admitted by its first
        chunk, which needs less if whole leaves of its hits are evicted.
        """
        if self.second.in_steps or (not self.free and self.tree.evictable):
            return 0
        hit = self._holds.hit(head)
        spare = self.available_tokens() - self._missing(hit, head.num_tokens)
        if spare >= 0:
            limit = self._decoders.steps_within(spare // self.page_tokens, limit)
        if hit.unlocked:
            limit = self._steps_without_eviction(limit)
        return limit

    def _steps_without_eviction(self, limit: int) -> int:
        """Number of steps, at most `limit`, before which a page for each decoder is free."""
        spare = self.free // self.page_tokens - self._decoders.num
        return min(limit, self._decoders.steps_within(spare, limit) + 1) if spare >= 0 else 0

    def advance(self, steps: int) -> Course:
        if self.second.in_steps:
            return self._advance_in_steps(steps)
        decoders, tree, size = self._decoders, self.tree, self.page_tokens
        num, done = decoders.num, 0
        moves = PageMoves()
        while done < steps:
            # SGLang makes room for a page per decoder before every step.
            before = tree.evicted
            self.make_room((num - (0 if done else len(decoders.extended))) * size)
            if tree.evicted > before:
                moves.evicted.add(tree.evicted - before, done + 1)
            span, spare = steps - done, self.free // size - num
            if spare >= 0 and tree.evictable:
                span = min(span, decoders.steps_within(spare, span, done) + 1)
            self.free -= decoders.pages(done, span, moves) * size
            done += span
        self._advance_decoders(steps, moves)
        return moves.course(num, size, self.token_bytes)

    def _advance_in_steps(self, steps: int) -> Course:
        base = self.usage(None, busy=True)
        ledger = LedgerJumps(base)
        used = allocated = 0
        for t in range(1, steps + 1):
            self.step()
            now = self.usage(None, busy=True)
            ledger.read(now, t)
            used = max(used, now.used - base.used)
            allocated = max(allocated, now.allocated - base.allocated)
        return ledger.course(used, allocated)

    def step(self) -> None:
        decoders, size = self._decoders, self.page_tokens
        if self.second.in_steps and not self._begun:
            self.make_room(decoders.num_without_room * size)
            self.begin_decode([], unreturned=self.second.lag, rides=False)
        self._begun = False
        self.make_room((decoders.num - len(decoders.extended)) * size)
        tokens = decoders.num_without_room * size
        self.free -= tokens
        self.second.take(tokens)
        self._advance_decoders(1, PageMoves())

    def _advance_decoders(self, steps: int, moves: PageMoves) -> None:
        """Each decoder fills `steps` slots, taking pages. `moves` gets the slots that stay empty in
        last pages.
        """
        if self.free < 0:
            raise self._lack(f"{steps} steps took {-self.free} tokens more than are free")
        self._decoders.last_pages(steps, moves)
        self._decoders.advance(steps)
        self._valid += self._decoders.num * steps
        self._over += moves.over.total

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        slots, second = self._live[seq], self.second
        if seq.finished and self.keeps_prefixes:
            upto = second.to_file_last(seq, slots)
            if upto is not None:
                second.filed_last(slots, self._file(seq, slots, upto))
        units = second.own_units(seq, slots)
        del self._live[seq]
        self._kept.pop(seq, None)
        if self.keeper is not None:
            self.keeper.released(seq)
        self.free += slots.granted - slots.protected
        second.part.free += units
        self._valid -= slots.tokens - slots.protected
        self._over -= slots.over
        slots.tokens = slots.granted = slots.over = 0
        self._holds.let_go(slots)
        slots.reset()
        slots.filed = slots.host_hit = 0
        slots.anchor = None
        if seq.finished:
            seq.memory = None

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        slots = self._live.get(seq)
        return self._decoders.granted(seq, slots) if slots is not None else 0

    def own_tokens(self) -> Iterator[tuple[Sequence, int]]:
        """(sequence, slots outside the tree in whole pages) of each live sequence."""
        for seq, slots in self._live.items():
            yield seq, self._decoders.granted(seq, slots) - slots.protected

    def shared_tokens(self, seq: Sequence) -> int:
        return self.tree.num_shared(self._holds.slots(seq).node)

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        return max(0, self._pages(tokens) - self.granted_tokens(seq))

    def cache_totals(self) -> CacheTotals:
        if not self.keeps_prefixes:
            return CacheTotals()
        return CacheTotals(self._query_tokens, self._hit_tokens)

    @property
    def saved_bytes(self) -> int | None:
        held = self.tree.locked - self.tree.in_transit
        return (self._holds.protected - held) * self.token_bytes

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        tree, part, size = self.tree, self.second.part, self.token_bytes
        unit = part.unit_bytes
        short = head is not None and not self._head_fits(head)
        used = tree.locked + self._valid
        empty = self.pool_tokens - self.free - tree.evictable - used - self._over
        valid, reserved, over = self.second.shares(empty, self._over)
        free = self.free * size + part.free * unit
        pools = self.pool_tokens * size + part.pool * unit
        return Usage(
            used * size + (part.locked + valid) * unit,
            empty * size + reserved * unit,
            self._over * size + over * unit,
            0,
            tree.evictable * size + part.evictable * unit,
            0,
            self.capacity_bytes - pools,
            0,
            free if short else 0,
            0 if short else free,
        )

    def _head_fits(self, head: Sequence) -> bool:
        hit = self._holds.hit(head)
        if not self.second.head_fits(self._pages(head.num_tokens) - hit.tokens):
            return False
        return self._missing(hit, head.num_tokens) <= self.available_tokens()

    @property
    def parts(self) -> Parts:
        copied, parts = self.tree.in_transit, NO_PARTS
        if self._expected or self._kept:
            coming = sum(s.granted - s.tokens - s.over for s in self._expected.values())
            kept = self._holds.only_these(self._kept.values())
            size = self.token_bytes
            parts = (ARRIVING, coming * size), (KEPT_FOR_READERS, kept * size)
        return (*parts, (IN_TRANSIT, copied * self.token_bytes)) if copied else parts

    def check(self) -> None:
        self.tree.check()
        own = valid = over = protected = 0
        for seq, slots in self._live.items():
            tokens = self._decoders.tokens(seq, slots)
            granted = self._decoders.granted(seq, slots)
            if not slots.protected <= tokens <= granted:
                raise InvariantError(f"{seq} has {tokens} valid slots of {granted} granted")
            own += granted - slots.protected
            valid += tokens - slots.protected
            over += max(0, granted - max(tokens, seq.final_tokens))
        holds = self._holds
        protected = sum(s.protected for s in (*self._live.values(), *holds.pinned.values()))
        found, counted = (valid, over, protected), (self._valid, self._over, holds.protected)
        if found != counted:
            raise InvariantError(f"slots of live sequences are {found}, counted as {counted}")
        total = self.free + own + self.tree.locked + self.tree.evictable
        if total != self.pool_tokens or self.free < 0:
            raise InvariantError(f"{total} of {self.pool_tokens} tokens accounted for")
        self._check_second()

    def _check_second(self) -> None:
        part = self.second.part
        own = sum(self.second.own_units(seq, slots) for seq, slots in self._live.items())
        pinned = sum(slots.states for slots in self._holds.pinned.values())
        total = part.free + part.evictable + part.locked + own + pinned
        if total != part.pool or part.free < 0:
            raise InvariantError(f"{total} of {part.pool} units of the second pool accounted for")
