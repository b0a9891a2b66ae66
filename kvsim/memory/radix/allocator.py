"""KV memory as SGLang keeps it (0.5.23): pages of one pool, and a radix tree over tokens.

What a sequence computes is its own until the scheduler says that the step has returned
(`checkpoint`), or until it ends; then the tree takes it over, in whole pages, and slots that hold
what the tree had already are free at once. A preempted sequence leaves behind what the tree has of
it. Pages have no numbers: every free one serves as well as any other.

Nothing is touched per sequence per step, and nothing costs by the token: content is kept as runs.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    Demand,
    Growth,
    Refusal,
)
from kvsim.memory.ledger import Course, Usage, split_free
from kvsim.memory.prefix import CacheTotals
from kvsim.memory.prefix_room import PrefixRoom
from kvsim.memory.radix.course import PageMoves
from kvsim.memory.radix.decoders import RadixDecoders
from kvsim.memory.radix.holds import Holds
from kvsim.memory.radix.slots import Slots
from kvsim.memory.radix.tree import Match, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence


class Keeper(Protocol):
    """Who is told when pages of sequences change hands."""

    def filing(self, seq: Sequence, tokens: int) -> None:
        """The tree is about to take over its first `tokens` own tokens; some it may know."""

    def released(self, seq: Sequence) -> None:
        """What is left of its own is free."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RadixAllocator(Allocator, PrefixRoom):
    """Counts of free, owned and cached tokens. caching: what sequences leave is kept for others.

    free: tokens of free pages. tree: known content; what nobody locks of it counts as cached.
    keeper: who is told of pages that change hands.
    """

    keeps_last_token: ClassVar[bool] = True

    def __init__(
        self,
        capacity_bytes: int,
        token_bytes: int,
        page_size: int,
        *,
        caching: bool,
        max_sequences: int | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.token_bytes = token_bytes
        self.page_tokens = page_size
        self.keeps_prefixes = caching
        self.max_sequences = max_sequences
        self.pool_tokens = capacity_bytes // (page_size * token_bytes) * page_size
        self.free = self.pool_tokens
        self.tree = RadixTree(page_size)
        self.keeper: Keeper | None = None
        self._holds = Holds(self.tree, caching=caching)
        self._decoders = RadixDecoders(page_size)
        self._live: dict[Sequence, Slots] = {}
        self._valid = 0  # valid slots beside the tree, of all live sequences
        self._over = 0  # slots of last pages that nobody will fill
        self._query_tokens = 0
        self._hit_tokens = 0

    # --- content -------------------------------------------------------------------------------

    def _whole(self, tokens: int) -> int:
        """`tokens` cut to whole pages."""
        return tokens - tokens % self.page_tokens

    def _pages(self, tokens: int) -> int:
        """Slots of the pages that `tokens` tokens take."""
        return ceil_div(tokens, self.page_tokens) * self.page_tokens

    def cached_tokens(self, seq: Sequence) -> int:
        return self._holds.hit(seq).tokens

    def look_up(self, seq: Sequence) -> int:
        return self._holds.look_up(seq)

    def pin(self, seq: Sequence) -> int:
        return self._holds.pin(seq)

    def unpin(self, seq: Sequence) -> None:
        self._holds.let_go(self._holds.pinned.pop(seq))

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if self.keeps_prefixes:
            whole, prompt = self._whole(num_tokens), self._whole(seq.prompt_tokens)
            if self.keeper is not None:
                self.keeper.filing(seq, whole - self._live[seq].protected)
            taken, duplicates = self._holds.file(self._live[seq], whole, prompt)
            self.free += duplicates
            self._valid -= taken

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        need = self._pages(request.prompt_tokens + request.output_tokens - 1)
        if need <= self.pool_tokens:
            return None
        return Refusal(
            "it needs more KV pages than the pool has",
            need // self.page_tokens,
            self.pool_tokens // self.page_tokens,
            f"pages of {self.page_tokens} tokens",
            "shorten the request or enlarge the pool",
        )

    def available_tokens(self) -> int:
        return self.free + self.tree.evictable

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        holds = self._holds
        if len(self._live) == self.max_sequences:
            return None
        if self._missing(holds.hit(seq), demand.fit_tokens) > self.available_tokens():
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
        return ADMITTED

    def _missing(self, hit: Match, tokens: int) -> int:
        """What a waiting sequence takes out of what is available to hold `tokens` tokens."""
        return self._pages(tokens) - hit.tokens + hit.unlocked

    def make_room(self, tokens: int) -> None:
        if self.free < tokens:
            self.free += self.tree.evict(tokens - self.free)

    def _take(self, tokens: int) -> None:
        self.make_room(tokens)
        self.free -= tokens
        if self.free < 0:
            raise InvariantError(f"{tokens} tokens taken from {self.free + tokens} free ones")

    def _grow(self, seq: Sequence, slots: Slots, num_tokens: int) -> None:
        """A sequence that does not decode has its first `num_tokens` slots, and they are valid."""
        granted = max(slots.granted, self._pages(num_tokens))
        self._take(granted - slots.granted)
        self._valid += num_tokens - slots.tokens
        slots.tokens, slots.granted = num_tokens, granted
        self._count_over(seq, slots, granted)

    def _count_over(self, seq: Sequence, slots: Slots, granted: int) -> None:
        """Count the slots of a last page that the sequence will never fill."""
        over = max(0, granted - max(slots.tokens, seq.final_tokens))
        self._over += over - slots.over
        slots.over = over

    # --- growth and decoding -------------------------------------------------------------------

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        slots = self._live[seq]
        granted = self._decoders.granted(seq, slots)
        need = self._pages(num_tokens) - granted
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
        self._decoders.join(seq, self._live[seq])

    def leave(self, seq: Sequence) -> None:
        self._decoders.leave(seq, self._live[seq])

    def must_extend(self) -> list[Sequence]:
        return self._decoders.without_room()

    def missing_for_step(self, slots: Callable[[Sequence], int]) -> int:
        return self._decoders.num_without_room * self.page_tokens

    def steps_that_fit(self, limit: int) -> int:
        return self._decoders.steps_within(self.available_tokens() // self.page_tokens, limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """What is evicted meanwhile leaves what the head is short of as it is: it has to compute
        what it cannot hit. But where nothing is free now, nobody has filed what an eviction frees;
        and a head admitted by its first chunk needs less at once when it hits less, for a leaf
        goes as a whole.
        """
        if not self.free and self.tree.evictable:
            return 0
        hit = self._holds.hit(head)
        spare = self.available_tokens() - self._missing(hit, head.num_tokens)
        if spare >= 0:
            limit = self._decoders.steps_within(spare // self.page_tokens, limit)
        if hit.unlocked:
            limit = self._steps_without_eviction(limit)
        return limit

    def _steps_without_eviction(self, limit: int) -> int:
        """Before how many steps a page for each decoder is free, at most `limit`."""
        spare = self.free // self.page_tokens - self._decoders.num
        return min(limit, self._decoders.steps_within(spare, limit) + 1) if spare >= 0 else 0

    def advance(self, steps: int) -> Course:
        decoders, tree, size = self._decoders, self.tree, self.page_tokens
        num, done = decoders.num, 0
        moves = PageMoves()
        while done < steps:
            # SGLang makes room for a page each before every step, whoever needs one.
            before = tree.evicted
            self.make_room((num - (0 if done else len(decoders.extended))) * size)
            if tree.evicted > before:
                moves.evicted.add(tree.evicted - before, done + 1)
            stretch, spare = steps - done, self.free // size - num
            if spare >= 0 and tree.evictable:
                stretch = min(stretch, decoders.steps_within(spare, stretch, done) + 1)
            self.free -= decoders.pages(done, stretch, moves) * size
            done += stretch
        self._advance_decoders(steps, moves)
        return moves.course(num, size, self.token_bytes)

    def step(self) -> None:
        decoders, size = self._decoders, self.page_tokens
        self.make_room((decoders.num - len(decoders.extended)) * size)
        self.free -= decoders.num_without_room * size
        self._advance_decoders(1, PageMoves())

    def _advance_decoders(self, steps: int, moves: PageMoves) -> None:
        """Each decoder fills so many slots, for which pages are taken. `moves` gets the slots that
        stay empty in the last pages begun.
        """
        if self.free < 0:
            raise InvariantError(f"{steps} steps took {-self.free} tokens more than are free")
        self._decoders.last_pages(steps, moves)
        self._decoders.advance(steps)
        self._valid += self._decoders.num * steps
        self._over += moves.over.total

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        slots = self._live[seq]
        if seq.finished:
            self.checkpoint(seq, slots.tokens)
        del self._live[seq]
        if self.keeper is not None:
            self.keeper.released(seq)
        self.free += slots.granted - slots.protected
        self._valid -= slots.tokens - slots.protected
        self._over -= slots.over
        slots.tokens = slots.granted = slots.over = 0
        self._holds.let_go(slots)
        if seq.finished:
            seq.memory = None

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        slots = self._live.get(seq)
        return self._decoders.granted(seq, slots) if slots is not None else 0

    def own_tokens(self) -> Iterator[tuple[Sequence, int]]:
        """Of each live sequence, the slots it holds beside the tree, in whole pages."""
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
        return (self._holds.protected - self.tree.locked) * self.token_bytes

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        tree, size = self.tree, self.token_bytes
        need = None if head is None else self._missing(self._holds.hit(head), head.num_tokens)
        external, short, idle = split_free(self.free, tree.evictable, need, placeable=True)
        used = tree.locked + self._valid
        held = self.pool_tokens - self.free - tree.evictable
        return Usage(
            used * size,
            (held - used - self._over) * size,
            self._over * size,
            0,
            tree.evictable * size,
            0,
            self.capacity_bytes - self.pool_tokens * size,
            external * size,
            short * size,
            idle * size,
        )

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
