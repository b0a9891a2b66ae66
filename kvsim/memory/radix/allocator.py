"""KV memory of SGLang (0.5.23): pages of one pool, and a radix tree over tokens.

Options add a second pool (sliding windows, recurrent states) and host memory as L2.

The content of a sequence is its own until the scheduler reports that the step has returned
(`checkpoint`), or until it ends. Then the tree takes it over, in whole pages, and slots with
content that the tree had already are freed. The tree keeps its part of a preempted sequence. Pages
are counted, without numbers. The scheduler submits copies to host memory and back, and reports when
they end; this module models their effect on both memories.

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
from kvsim.memory.ledger import Course, Usage
from kvsim.memory.parts import Parts
from kvsim.memory.radix.decode_steps import DecodeSteps
from kvsim.memory.radix.hicache.backup import Backup
from kvsim.memory.radix.holds import Holds, Slots
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.page_pool import PageLedger, PagePool, TransferredPages
from kvsim.memory.radix.radix_host import RadixHost
from kvsim.memory.radix.second_memory import SecondMemory, no_second_memory
from kvsim.memory.radix.second_pool import Places
from kvsim.memory.radix.tree import RadixTree
from kvsim.memory.radix.tree_room import TreeRoom
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


class Keeper(Protocol):
    """Is notified when pages of sequences change owner."""

    def filing(self, seq: Sequence, tokens: int) -> None:
        """The tree is about to take over the first `tokens` unshared tokens of `seq`, cached
        already or not.
        """

    def released(self, seq: Sequence) -> None:
        """The remaining unshared pages of `seq` are freed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RadixAllocator(Allocator):
    """SGLang's KV memory under kvsim's allocator interface.

    caching: finished content is cached. pool: the pages, of pool_tokens slots; not given: as many
    as the bytes hold. tree, second: see `PagePool`. room: answers to SGLang's scheduler.
    transferred: content of other engines. backup: copies to host memory, of host_tokens;
    write_threshold: see `Backup`. host_hit_tokens: tokens loaded from host memory for hits. keeper:
    notified when pages change owner.
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
        self.second = no_second_memory(page_size) if second is None else second
        self.tree = RadixTree(page_size, self.second.part, RadixHost(host_tokens))
        self.backup = Backup(self.tree, write_threshold)
        self.keeper: Keeper | None = None
        holds = Holds(self.tree, self.backup, grid=self.second.grid, caching=caching)
        self.pool = pool = PagePool(
            capacity_bytes, token_bytes, page_size, pool_tokens, self.tree, self.second, holds
        )
        self._holds, self._decoders, self._live = holds, pool.decoders, pool.live
        self.transferred = TransferredPages(pool)
        self._ledger = PageLedger(pool, self.transferred)
        self._steps = DecodeSteps(pool, self._ledger)
        self.room = TreeRoom(pool, self._steps)
        self._query_tokens = 0
        self._hit_tokens = 0
        self.host_hit_tokens = 0

    # --- content -------------------------------------------------------------------------------

    def slots(self, seq: Sequence) -> Slots:
        """The record (`Slots`) of what `seq` holds."""
        return self._holds.slots(seq)

    def cached_tokens(self, seq: Sequence) -> int:
        return self._holds.hit(seq).tokens

    def anchor(self, seq: Sequence) -> tuple[Node, int]:
        """The node where the cached prefix of a waiting `seq` ends, on the device or the host, and
        its number of tokens.

        The prefix counts as used now.
        """
        found = self.tree.look_up(self.slots(seq).content, seq.num_tokens - 1)
        return found.node, found.tokens

    def extend_pin(self, seq: Sequence, node: Node, tokens: int) -> None:
        """Extend the locked prefix of a pinned `seq` by `tokens` tokens, down to `node`. The tokens
        are on the device, with slots already allocated.
        """
        self.pool.free -= tokens
        self._holds.extend(self.slots(seq), node, tokens)

    def restore(
        self, seq: Sequence, promised: int, missing: int, load: Callable[[Sequence], bool]
    ) -> bool:
        """Lock the first `promised` tokens of a sequence in transfer, and load those that only host
        memory has. missing: number of promised tokens that were only in host memory when promised.
        load: queues the load of the sequence's host hit.

        Returns False if the prefix is in neither memory, or if the device lacks slots for it.
        """
        slots = self.slots(seq)
        found = self.tree.look_up(slots.content, promised)
        if found.tokens < promised:
            return False
        node, there = self.tree.on_device(found.node, found.tokens)
        before = slots.protected
        if there > before:  # another sequence has loaded it meanwhile
            self._holds.extend(slots, node, there - before)
        slots.anchor, slots.host_hit = found.node, promised - there
        done = promised == there or load(seq)
        self.transferred.loaded(seq, slots.protected - before)
        return done

    def count_hit(self, tokens: int, hit_tokens: int, host_tokens: int) -> None:
        """Count the hits of a transferred prompt of `tokens` tokens. hit_tokens: hit on the device
        or in host memory, of which the last host_tokens in host memory.
        """
        self._query_tokens += tokens
        self._hit_tokens += hit_tokens
        self.host_hit_tokens += host_tokens

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if self.keeps_prefixes:
            slots = self._live[seq]
            upto = self.second.to_file(slots, num_tokens)
            if upto is not None:
                self.second.filed(slots, self._file(seq, slots, upto), num_tokens)

    def _file(self, seq: Sequence, slots: Slots, upto: int) -> Places:
        """Insert the first `upto` tokens of a live sequence, in whole pages, into the tree
        (cache_unfinished_req); the sequence locks them there.
        """
        whole, before = self.pool.whole(upto), slots.protected
        if self.keeper is not None:
            self.keeper.filing(seq, whole - before)
        places = Places(before, whole, slots.cursor)
        self.pool.free += self._holds.file(slots, places, self.pool.whole(seq.prompt_tokens))
        self.pool.valid -= whole - before
        return places

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        need = self.pool.pages(request.final_tokens)
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
            cached = self.room.pin(seq)
            if cached != demand.cached_tokens:
                raise InvariantError(f"{seq} hits {cached} tokens, not {demand.cached_tokens}")
        fits = self.pool.missing(holds.hit(seq), demand.fit_tokens) <= self.pool.available_tokens()
        if not fits or not second.fits(self.slots(seq), self.pool.pages(demand.fit_tokens)):
            if pinned_here:
                self.room.unpin(seq)
            return None
        if seq not in holds.pinned:
            holds.pin(seq)
        slots = self._live[seq] = holds.pinned.pop(seq)
        slots.tokens = slots.granted = slots.protected
        if self.tree.listener is not None and slots.node is not None:
            self.tree.listener.hit(slots.protected, slots.node.depth)
        self.pool.grow(seq, slots, demand.num_tokens)
        if not seq.num_preemptions:
            self._query_tokens += seq.num_tokens
            self._hit_tokens += demand.cached_tokens
            self.host_hit_tokens += slots.loaded
        second.admitted(slots)
        return ADMITTED

    # --- growth and decoding -------------------------------------------------------------------

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        slots = self._live[seq]
        granted = self._decoders.granted(seq, slots)
        need = self.pool.pages(num_tokens) - granted
        if need > self.second.room(need):
            return None
        if not seq.decoding:
            slots.chunks += 1
        if need > self.pool.available_tokens():
            return None
        if not seq.decoding:
            self.pool.grow(seq, slots, num_tokens)
        elif need > 0:
            self.pool.take(need)
            self._decoders.extended[seq] = None
            self.pool.count_over(seq, slots, granted + need)
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

    def steps_that_fit(self, limit: int) -> int:
        return self._steps.steps_that_fit(limit)

    def steps_without_copies(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, in which no content is copied to host memory to
        make room.
        """
        return self._steps.steps_without_copies(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        return self._steps.steps_head_stays_blocked(head, limit)

    def advance(self, steps: int) -> Course:
        return self._steps.advance(steps)

    def step(self) -> None:
        self._steps.step()

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        slots, second = self._live[seq], self.second
        if seq.finished and self.keeps_prefixes:
            upto = second.to_file_last(seq, slots)
            if upto is not None:
                second.filed_last(slots, self._file(seq, slots, upto))
        units = second.own_units(seq, slots)
        del self._live[seq]
        self.transferred.kept.pop(seq, None)
        if self.keeper is not None:
            self.keeper.released(seq)
        self.pool.free += slots.granted - slots.protected
        second.part.free += units
        self.pool.valid -= slots.tokens - slots.protected
        self.pool.over -= slots.over
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
        """(sequence, number of slots outside the tree, in whole pages) for each live sequence."""
        for seq, slots in self._live.items():
            yield seq, self._decoders.granted(seq, slots) - slots.protected

    def shared_tokens(self, seq: Sequence) -> int:
        return self.tree.num_shared(self._holds.slots(seq).node)

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        return max(0, self.pool.pages(tokens) - self.granted_tokens(seq))

    def cache_totals(self) -> CacheTotals:
        if not self.keeps_prefixes:
            return CacheTotals()
        return CacheTotals(self._query_tokens, self._hit_tokens)

    @property
    def saved_bytes(self) -> int | None:
        return self._ledger.saved_bytes

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        return self._ledger.usage(head)

    @property
    def parts(self) -> Parts:
        return self._ledger.parts

    def check(self) -> None:
        self._ledger.check()
