"""What of a sequence lies in host memory, behind what the device has."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvsim.engine.connectors.offloading.settings import OffloadedGroup
from kvsim.plumbing.units import ceil_div

ABSENT, WRITING, READY, UNKNOWN = range(4)
# What is known of the chunks of a group from one place to another, in this order, as far as asked.
StatesOf = Callable[[int, int, int], Iterator[int]]


class HostFound(NamedTuple):
    """tokens: up to where everything needed is in host memory, from the sequence's start. put_off:
    some of it is on its way there, or it is not known yet whether it is.
    """

    tokens: int
    put_off: bool = False


def find(
    groups: tuple[OffloadedGroup, ...], end: int, device_tokens: int, states: StatesOf
) -> HostFound | None:
    """The longest prefix, at most `end` tokens, that all groups can continue from, where the device
    has the first `device_tokens`; None: nothing worth a load (vLLM 0.33,
    kv_connector/v1/offloading/scheduler.py).
    """
    order = sorted(range(len(groups)), key=lambda g: -(groups[g].window_tokens or 1 << 62))
    while True:
        before, put_off = end, False
        for g in order:
            group = groups[g]
            if group.window_tokens is None:
                found = _of_full(g, group, end, device_tokens, states)
            else:
                found = _of_window(g, group, end, device_tokens, states)
            if found is None:
                return HostFound(device_tokens, put_off=True) if put_off else None
            end = min(end, found.tokens)
            put_off = put_off or found.put_off
        if put_off or end == before or len(groups) == 1:
            return HostFound(end, put_off)


def _of_full(
    g: int, group: OffloadedGroup, end: int, device_tokens: int, states: StatesOf
) -> HostFound | None:
    size = group.chunk_tokens
    end -= end % size
    if end - device_tokens < size:
        return None
    first, run, put_off = device_tokens // size, 0, False
    for known in states(g, first, ceil_div(end, size)):
        if known == ABSENT:
            break
        if known == UNKNOWN:
            put_off = True
            continue
        put_off = put_off or known == WRITING
        run += 1
    if put_off:
        return HostFound(end, put_off=True)
    tokens = min(end, size * (first + run))
    if not run or tokens - device_tokens < size:
        return None
    return HostFound(tokens)


def _of_window(
    g: int, group: OffloadedGroup, end: int, device_tokens: int, states: StatesOf
) -> HostFound | None:
    """The last run of chunks that a window needs, or the run that the sequence begins with."""
    size, window = group.chunk_tokens, group.window_tokens
    assert window is not None
    need, run, put_off = ceil_div(window, size), 0, False
    place, last = ceil_div(end, size), 0
    while place and run < need:
        place -= 1
        known = next(states(g, place, place + 1))
        if known == ABSENT:
            run = 0
            continue
        put_off = put_off or known in (WRITING, UNKNOWN)
        if not run:
            last = place + 1
        run += 1
    if put_off:
        return HostFound(end, put_off=True)
    tokens = min(end, last * size) if run else 0
    return HostFound(tokens) if tokens - device_tokens >= size else None
