"""The units of scheduling and hashing that groups of different blocks agree on."""

from collections.abc import Sequence
from math import gcd, lcm
from typing import NamedTuple

from kvsim.capacity.planning.groups import CacheGroup
from kvsim.capacity.planning.serving import Serving


class Units(NamedTuple):
    """In tokens. scheduler_block_size: a multiple of every group's block. prefix_match_unit: that
    one hash covers. hit_alignment: hits are multiples of it; partial_hits: it may lie in a block.
    """

    scheduler_block_size: int
    prefix_match_unit: int
    hit_alignment: int
    partial_hits: bool


def plan_units(groups: Sequence[CacheGroup], serving: Serving) -> Units:
    """The units of these groups."""
    sizes = [group.block_size for group in groups]
    whole = lcm(*sizes)
    if len(groups) == 1 or not serving.enable_prefix_caching:
        return Units(whole, whole, whole, partial_hits=False)
    unit = serving.prefix_match_unit or gcd(*sizes)
    recurrent = any(group.kind == "recurrent" and group.block_size > unit for group in groups)
    others = all(
        group.kind in ("full", "mla", "recurrent") or group.block_size == unit for group in groups
    )
    partial = recurrent and others
    return Units(whole, unit, unit if partial else whole, partial)
