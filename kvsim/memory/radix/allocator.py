"""KV memory as SGLang keeps it (0.5.23): pages of one pool, and a radix tree over tokens.

The content of a sequence is its own until the scheduler reports that the step has returned
(`checkpoint`), or until it ends. Then the tree takes it over, in whole pages, and slots with
content that the tree had already are freed. The tree keeps its part of a preempted sequence. Pages
are counted, without numbers.

No cost grows with sequences per step, or with tokens: content is kept as runs.
"""

from collections.abc import Callable
from typing import ClassVar

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import ADMITTED, GROWN, Admission, Demand, Growth, Refusal
from kvsim.memory.ledger import Course
from kvsim.memory.prefix_room import Known, PrefixRoom
from kvsim.memory.radix.books import PageLedger
from kvsim.memory.radix.decoders import PageMoves
from kvsim.memory.radix.holds import Slots
from kvsim.memory.radix.second_pool import Places
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class RadixAllocator(PageLedger, PrefixRoom):
    """Pages and a radix tree over one pool."""

    keeps_last_token: ClassVar[bool] = True

    # --- content -------------------------------------------------------------------------------

    def _whole(self, tokens: int) -> int:
        """`tokens` cut to whole pages."""
        return tokens - tokens % self.page_tokens

    def cached_tokens(self, seq: Sequence) -> int:
        return self._holds.hit(seq).tokens

    def look_up(self, seq: Sequence) -> Known:
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
            slots = self._live[seq]
            taken = whole - slots.protected
            places = Places(slots.protected, whole, 0)
            self.free += self._holds.file(slots, places, prompt)
            self._valid -= taken

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

    def make_room(self, tokens: int) -> None:
        if self.free < tokens:
            self.free += self.tree.evict(tokens - self.free)

    def _take(self, tokens: int) -> None:
        self.make_room(tokens)
        self.free -= tokens
        if self.free < 0:
            raise InvariantError(f"{tokens} tokens taken from {self.free + tokens} free ones")

    def _grow(self, seq: Sequence, slots: Slots, num_tokens: int) -> None:
        """Grant the first `num_tokens` slots to a sequence that does not decode; they are valid."""
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
        """See `Allocator`. Evictions do not change what the head lacks, as it computes what it
        cannot hit. Exceptions: nothing is free now, so evictions are not recorded; or the head is
        admitted by its first chunk, which needs less if whole leaves of its hits are evicted.
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
        """Number of steps, at most `limit`, before which a page for each decoder is free."""
        spare = self.free // self.page_tokens - self._decoders.num
        return min(limit, self._decoders.steps_within(spare, limit) + 1) if spare >= 0 else 0

    def advance(self, steps: int) -> Course:
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

    def step(self) -> None:
        decoders, size = self._decoders, self.page_tokens
        self.make_room((decoders.num - len(decoders.extended)) * size)
        self.free -= decoders.num_without_room * size
        self._advance_decoders(1, PageMoves())

    def _advance_decoders(self, steps: int, moves: PageMoves) -> None:
        """Each decoder fills `steps` slots, taking pages. `moves` gets the slots that stay empty in
        last pages.
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
        self._kept.pop(seq, None)
        if self.keeper is not None:
            self.keeper.released(seq)
        self.free += slots.granted - slots.protected
        self._valid -= slots.tokens - slots.protected
        self._over -= slots.over
        slots.tokens = slots.granted = slots.over = 0
        self._holds.let_go(slots)
        if seq.finished:
            seq.memory = None
