"""Divide the pool's bytes into two pools, pages and windows or states, and build the allocator over
both.

    windows   T = bytes // (full cell + ratio * window cell) tokens, and T * ratio of windows
    states    slots in bytes * r / (1 + r), one more for padding; KV in what is left. A model of
              states alone has no bytes in its pages, which SGLang still counts; it computes
              without buffers even where steps overlap.

(model_executor/pool_configurator.py, mem_cache/kv_cache_configurator.py, 0.5.23)
"""

from typing import NamedTuple

from kvsim.memory.options import MemorySpec
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.second_memory import SecondMemory
from kvsim.memory.radix_hybrid.held_states import HeldStates
from kvsim.memory.radix_hybrid.held_windows import HeldWindows
from kvsim.memory.radix_hybrid.states import StatePart
from kvsim.memory.radix_hybrid.strategy import (
    STATES_RATIO,
    Strategy,
    states_a_request,
    states_by_ratio,
)
from kvsim.memory.radix_hybrid.tracking import TrackingGrid
from kvsim.memory.radix_hybrid.windows import WindowPart
from kvsim.plumbing.errors import InputError


class WindowFlags(NamedTuple):
    """Options of the pool of sliding windows, by SGLang's names."""

    page_size: int
    interval: int
    drops_locks: bool
    caching: bool


class StateFlags(NamedTuple):
    """Options of the pool of recurrent states, by SGLang's names. most_on_path: most states on one
    tree path, -1 for no limit.
    """

    page_size: int
    strategy: Strategy
    interval: int
    most_on_path: int
    caching: bool


class TwoPools(NamedTuple):
    """The sizes of both pools. tokens: slots of the pool of pages, of token_bytes each. units:
    units of the second pool.
    """

    tokens: int
    token_bytes: int
    units: int
    unit_bytes: int

    def _allocator(
        self,
        memory: MemorySpec,
        page_size: int,
        second: SecondMemory,
        *,
        caching: bool,
        max_sequences: int | None = None,
    ) -> RadixAllocator:
        return RadixAllocator(
            memory.capacity_bytes,
            self.token_bytes,
            page_size,
            caching=caching,
            max_sequences=max_sequences,
            pool_tokens=self.tokens,
            second=second,
        )

    def over_windows(self, memory: MemorySpec, flags: WindowFlags) -> RadixAllocator:
        """The allocator of pages and windows; InputError if no request could be served."""
        window = max(group.window_tokens or 0 for group in memory.layout.groups)
        if window + flags.page_size >= self.units:
            raise InputError(
                "the windows' pool holds no request",
                where="allocator.swa_full_tokens_ratio",
                value=f"{self.units:,} tokens",
                limit=f"more than {window + flags.page_size:,} tokens of a window and a page",
                remedy="raise it, or give the pool more memory",
            )
        part = WindowPart(self.units, self.unit_bytes, window, flags.page_size)
        depth = 1 + memory.hash_lag
        in_flight = memory.max_in_flight_tokens
        second = HeldWindows(
            part,
            lag=memory.hash_lag,
            interval=flags.interval,
            chunk=None if in_flight is None else in_flight // depth,
            drops_locks=flags.drops_locks,
            caching=flags.caching,
        )
        return self._allocator(memory, flags.page_size, second, caching=flags.caching)

    def over_states(self, memory: MemorySpec, flags: StateFlags) -> RadixAllocator:
        """The allocator of pages and states; InputError if no request could be served."""
        strategy = flags.strategy if flags.caching else "no_buffer"
        lag = memory.hash_lag
        overlaps = bool(lag) and self.token_bytes > 0
        if flags.caching and strategy == "no_buffer" and (overlaps or flags.page_size > 1):
            raise InputError(
                "states are cached without buffers only at each token, one step after the other",
                where="allocator.mamba_radix_cache_strategy",
                value=strategy,
                remedy="take extra_buffer, or page_size = 1 and disable_overlap_schedule = true"
                if self.token_bytes
                else "take page_size = 1, or disable_radix_cache = true",
            )
        lazily = strategy == "extra_buffer_lazy"
        if lazily and not lag:
            raise InputError(
                "buffers are taken lazily only where steps overlap",
                where="allocator.mamba_radix_cache_strategy",
                value=strategy,
                remedy="take extra_buffer, or leave disable_overlap_schedule out",
            )
        each = states_a_request(strategy, overlaps=bool(lag), caching=flags.caching)
        if self.units < each:
            raise InputError(
                "the pool of states holds no request",
                where="allocator.max_mamba_cache_size",
                value=f"{self.units:,} states",
                limit=f"at least {each}, those of one request",
                remedy="raise it, or give the pool more memory",
            )
        most = flags.most_on_path
        second = HeldStates(
            StatePart(self.units, self.unit_bytes, None if most < 0 else most),
            flags.page_size,
            lag=lag,
            tracking=None
            if strategy == "no_buffer"
            else TrackingGrid(flags.page_size, flags.interval),
            lazily=lazily,
        )
        return self._allocator(
            memory,
            flags.page_size,
            second,
            caching=flags.caching,
            max_sequences=self.units // each,
        )


def window_pools(memory: MemorySpec, page: int, ratio: float) -> TwoPools:
    """Divide the pool's bytes into pages and windows."""
    groups = memory.layout.groups
    full = sum(group.bytes_per_token for group in groups if group.kind != "sliding")
    window = sum(group.bytes_per_token for group in groups if group.kind == "sliding")
    if not full:
        raise InputError(
            "the radix tree's pages hold layers that keep all tokens",
            where="allocator.kind",
            value="radix, with sliding windows in every layer",
            remedy="use paged",
        )
    if memory.window_tokens is not None:
        rest = memory.capacity_bytes - memory.window_tokens * window
        return TwoPools(max(0, rest // full) // page * page, full, memory.window_tokens, window)
    tokens = int(memory.capacity_bytes // (full + ratio * window)) // page * page
    return TwoPools(tokens, full, int(tokens * ratio) // page * page, window)


def state_pools(memory: MemorySpec, page: int, most: int | None) -> TwoPools:
    """Divide the pool's bytes into pages and states; InputError if states leave no room for KV. In
    a model of only recurrent layers pages take no bytes: their number is given, else the longest
    sequence fills them (pool_configurator.py, `_zero_kv_max_tokens`).
    """
    groups, capacity = memory.layout.groups, memory.capacity_bytes
    cell = memory.layout.bytes_per_token
    state = sum(group.state_bytes for group in groups)
    slots = most if most is not None else memory.states
    if slots is None:
        slots = states_by_ratio(capacity, state, STATES_RATIO)
    rest = capacity - (slots + 1) * state
    if slots < 1 or rest < cell:
        raise InputError(
            "the states of recurrent layers leave no room",
            where="allocator.max_mamba_cache_size",
            value=f"{slots:,} states of {state:,} bytes",
            limit=f"{capacity:,} bytes for states and KV",
            remedy="give the pool more memory, or ask for fewer states",
        )
    counted = memory.pool_tokens or memory.max_model_len
    return TwoPools((rest // cell if cell else counted) // page * page, cell, slots, state)
