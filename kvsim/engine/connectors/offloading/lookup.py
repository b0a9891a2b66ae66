"""Lookup of a sequence's chunks in host memory, after its hit on the device (vLLM 0.33,
kv_connector/v1/offloading/scheduler.py).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvsim.engine.connectors.offloading.settings import OffloadedGroup
from kvsim.plumbing.units import ceil_div

ABSENT, WRITING, READY, UNKNOWN = range(4)
# (group, first, last) -> states of the chunks first to last - 1, computed as they are read.
StatesOf = Callable[[int, int, int], Iterator[int]]


class HostFound(NamedTuple):
    """Result of a lookup in host memory.

    tokens: length of the hit, counted from the sequence's start. put_off: the lookup is pending, as
    some chunks are being written, or a tier has not answered.
    """

    tokens: int
    put_off: bool = False


class HostQuery(NamedTuple):
    """A lookup's question.

    num_tokens: known tokens of the sequence; only full chunks of these can be hit. end: tokens of
    the longest useful hit. limited: the request limits the hit (max_load_tokens), so that it ends
    with a chunk. device_tokens: tokens hit on the device.
    """

    num_tokens: int
    end: int
    limited: bool
    device_tokens: int


class HostSearch:
    """One lookup of one sequence: each layer group shortens the hit, until all groups can continue
    from it.
    """

    def __init__(
        self, groups: tuple[OffloadedGroup, ...], asked: HostQuery, states: StatesOf
    ) -> None:
        self._groups, self._asked, self._states = groups, asked, states
        self._gave: set[int] = set()  # groups with drafter layers that dropped their last chunk
        full = [g for g, group in enumerate(groups) if group.reach_tokens is None]
        short = [g for g, group in enumerate(groups) if group.reach_tokens is not None]
        self._short = sorted(short, key=lambda g: -groups[g].reach_chunks)
        self._order = full + self._short

    def found(self) -> HostFound | None:
        """The longest hit that all layer groups can continue from; None: less than a chunk."""
        asked, end, hit = self._asked, self._asked.end, 0
        put_off, todo = False, self._order
        while todo:
            again: list[int] = []
            short_before = False
            for g in todo:
                group = self._groups[g]
                size = group.chunk_tokens
                end = min(end, asked.num_tokens // size * size)
                if asked.limited:
                    end -= end % size
                if end - asked.device_tokens < size:
                    return None
                gives = group.drafts and g not in self._gave
                found = self._of_group(g, end, gives=gives)
                if found == 0:
                    return None
                if found is None:
                    put_off = True
                else:
                    if gives:
                        found -= 1
                        self._gave.add(g)
                    end = min(end, (asked.device_tokens // size + found) * size)
                    if end - asked.device_tokens < size:
                        return None
                before, hit = hit, end - asked.device_tokens
                if hit < before:
                    if not group.drafts:
                        self._gave.clear()
                    if put_off:
                        put_off, again = False, self._order
                    elif short_before and not again:
                        again = self._short
                short_before = short_before or group.reach_tokens is not None
            todo = again
        return HostFound(asked.device_tokens + hit, put_off)

    def _of_group(self, g: int, end: int, *, gives: bool) -> int | None:
        """Number of chunks hit in layer group g after the device's hit; None: the lookup is
        pending.

        gives: the last hit chunk will be dropped, so one chunk more is looked up.
        """
        group = self._groups[g]
        size, whole = group.chunk_tokens, self._asked.num_tokens // group.chunk_tokens
        first = self._asked.device_tokens // size
        last = min(ceil_div(end, size) + gives, whole)
        if group.reach_tokens is None:
            return self._leading(g, first, last)
        need = group.chunks_below(min(end, (last - gives) * size))
        return self._last_run(g, first, last, need + gives, group.reach_chunks + gives)

    def _leading(self, g: int, first: int, last: int) -> int | None:
        run, put_off = 0, False
        for known in self._states(g, first, last):
            if known == ABSENT:
                break
            run += known != UNKNOWN
            put_off = put_off or known != READY
        return None if put_off else run

    def _last_run(self, g: int, first: int, last: int, need: int, inside: int) -> int | None:
        """End (counted from `first`) of the last run of chunks that covers the layers' window, else
        the length of the run that begins at `first`. None: the lookup is pending.

        need: chunks of a run that ends at `last`, where a chunk may be partial. inside: chunks of a
        run that ends earlier.
        """
        run, unknown, writing = 0, False, False
        for place in range(last - 1, first - 1, -1):
            known = next(self._states(g, place, place + 1))
            if known in (READY, WRITING):
                run += 1
                writing = writing or known == WRITING
            else:
                unknown = unknown or known == UNKNOWN
                run, writing, need = 0, False, inside
            if run == need:
                return None if unknown or writing else place - first + need
        return None if unknown or writing else run
