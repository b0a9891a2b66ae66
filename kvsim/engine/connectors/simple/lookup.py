"""Prefix lookup in host blocks after the device's hit. vLLM's coordinator has the same rule for
both pools (0.33, v1/core/kv_cache_coordinator.py). All groups have the same number of tokens per
block.
"""

from collections.abc import Callable

from kvsim.engine.connectors.simple.settings import SimpleGroup
from kvsim.plumbing.units import ceil_div

Knows = Callable[
    [int, int], bool
]  # (group, position after the device's hit) -> it has a host block


class HostLookup:
    """Finds the longest hit from which all layer groups can continue. At least one group has full
    attention.
    """

    def __init__(self, groups: tuple[SimpleGroup, ...], block_tokens: int) -> None:
        self._size = block_tokens
        members: dict[int, list[int]] = {}
        for g, group in enumerate(groups):
            members.setdefault(group.kind, []).append(g)
        kinds = [(groups[found[0]], found) for found in members.values()]
        # Full attention comes first, as it is looked up from the left.
        self._kinds = sorted(kinds, key=lambda kind: kind[0].reach_tokens is not None)
        self._groups = groups

    def find(self, most: int, limit: int, knows: Knows) -> int:
        """Number of blocks of the longest hit after the device's hit, at most `most`.

        limit: number of blocks with keys. A kind of group with drafter layers drops its last hit
        block, so it must find one block more, up to this limit. knows(group, position): whether
        host memory holds the block.
        """
        kinds = self._kinds
        if len(self._groups) == 1:
            return self._leading(kinds[0][1], most, knows, gives=kinds[0][0].drops)
        hit = length = most
        of_full: dict[int, int] = {}  # looked up once
        gave = set[int]()
        while True:
            for index, (group, members) in enumerate(kinds):
                if index in of_full:
                    length = min(length, of_full[index])
                    continue
                gives = group.drops and index not in gave
                upto = min(length + 1, limit) if gives else length
                if group.reach_tokens is None:
                    found = of_full[index] = self._leading(members, upto, knows, gives=gives)
                else:
                    found = self._last_run(group, members, upto, knows, gives=gives)
                if gives:
                    gave.add(index)
                elif found < length:
                    gave.clear()
                length = found
            if length >= hit or len(kinds) == 2:
                return length
            hit = length

    def needed(self, g: int, hit: int) -> range:
        """Positions of the blocks of group g that are loaded for a hit of `hit` blocks."""
        return range(max(0, hit - self._need(self._groups[g], hit)), hit)

    def _need(self, group: SimpleGroup, hit: int) -> int:
        if group.reach_tokens is None:
            return hit
        return ceil_div(group.reach_tokens - 1, self._size) if group.reach_tokens else 1

    def _leading(self, members: list[int], most: int, knows: Knows, *, gives: bool) -> int:
        known = 0
        while known < most and all(knows(g, known) for g in members):
            known += 1
        return max(0, known - gives)

    def _last_run(
        self, group: SimpleGroup, members: list[int], most: int, knows: Knows, *, gives: bool
    ) -> int:
        """End of the hit: the last run of blocks that covers the window, else the run at the start.

        gives: the last hit block is dropped.
        """
        need, run = self._need(group, most) + gives, 0
        for place in range(most - 1, -1, -1):
            run = run + 1 if all(knows(g, place) for g in members) else 0
            if run and run >= need:
                return place + run - gives
        return 0 if group.reach_tokens == 0 else max(0, run - gives)
