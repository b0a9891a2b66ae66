"""`PrefixRoom` of a radix tree's pool: its answers to SGLang's scheduler."""

from collections.abc import Callable

from kvsim.memory.prefix_room import Known, PrefixRoom, WindowRoom
from kvsim.memory.radix.branches import by_branch
from kvsim.memory.radix.decode_steps import DecodeSteps
from kvsim.memory.radix.holds import slots_of
from kvsim.memory.radix.page_pool import PagePool
from kvsim.sequence import Sequence


class TreeRoom(PrefixRoom):
    """The free and evictable slots of `pool`."""

    def __init__(self, pool: PagePool, steps: DecodeSteps) -> None:
        self._pool, self._second, self._steps = pool, pool.second, steps

    def available_tokens(self) -> int:
        return self._pool.available_tokens()

    def look_up(self, seq: Sequence) -> Known:
        return self._pool.holds.look_up(seq)

    def depth_first(self, seqs: list[Sequence]) -> list[Sequence]:
        return by_branch(self._pool.tree, {seq: slots_of(seq).anchor for seq in seqs})

    def pin(self, seq: Sequence) -> int:
        cached = self._pool.holds.pin(seq)
        self._second.pinned(self._pool.holds.slots(seq))
        return cached

    def unpin(self, seq: Sequence) -> None:
        slots = self._pool.holds.pinned.pop(seq)
        self._second.unpinned(slots)
        self._pool.holds.let_go(slots)

    def make_room(self, tokens: int) -> None:
        self._pool.make_room(tokens)

    def missing_for_step(self, slots: Callable[[Sequence], int]) -> int:
        return self._pool.decoders.num_without_room * self._pool.page_tokens

    # --- where layers do not all keep all tokens -------------------------------------------------

    @property
    def windows(self) -> WindowRoom | None:
        return self._second.windows

    @property
    def steps_on_its_own(self) -> bool:
        return self._second.in_steps or (
            self._steps.writes_back and bool(self._pool.tree.evictable)
        )

    def tokens_for_step(self) -> int:
        if self._pool.tree.host.tokens:
            # What could be evicted was, when room was made; other tokens may count as evictable,
            # but have something below them that a copy needs.
            return self._second.room(self._pool.free)
        return self._second.room(self._pool.available_tokens())

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        self._second.begin_prefill(chunked, newcomers)

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        self._steps.begun = True
        self._second.begin_decode(stopping, unreturned=unreturned, rides=rides)

    def step_scheduled(self, order: Callable[[Sequence], int]) -> None:
        self._second.step_scheduled(order)

    def step_returned(self) -> None:
        self._second.step_returned()
