"""Differences between versions of SGLang in a server's memory: one constant each.

They are read off the wheels 0.4.2, 0.4.6, 0.4.10, 0.5.3, 0.5.6, 0.5.9, 0.5.10, 0.5.12, 0.5.17 and
0.5.23. The files are srt/server_args.py, srt/arg_groups/memory_hook.py and srt/model_executor. A
release between two of them has the rules of the older one.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from kvsim.memory.radix_hybrid.strategy import Strategy
from kvsim.plumbing.errors import InputError

GIB_MIB = 1024
# By the GPUs that split a layer, most first: the share of weights and pools.
SHARES = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
# How the share is taken: by those GPUs alone, by a reserve of the device's tier, or by the parts
# that `fraction` adds up.
Reserve = Literal["shares", "shares_up_to_80_gib", "tiers", "parts"]
FLAT_RESERVE_MIB = 13 * GIB_MIB  # of devices above 80 GiB, before there were tiers


class Tier(NamedTuple):
    """A class of devices below a number of MiB: tokens of a chunk, sequences of the largest CUDA
    graph.

    Both also for layers split over four GPUs or more.

    reserve_gib, each_gib: of the device, and for each GPU, where the version reserves by tier.
    """

    below_mib: float
    chunk: int
    graph: int
    graph_of_several: int
    reserve_gib: float = 0.0
    each_gib: float = 0.0


def _tiers(second: tuple[int, int, int]) -> tuple[Tier, ...]:
    """The tiers of devices. second: chunk, graph and graph_of_several of the second tier."""
    return (
        Tier(20 * GIB_MIB, 2048, 8, 8),
        Tier(35 * GIB_MIB, *second),
        Tier(60 * GIB_MIB, 4096, 32, 160),
        Tier(160 * GIB_MIB, 8192, 256, 512),
        Tier(float("inf"), 16384, 512, 512),
    )


# Before 0.5 the tiers were others, with a reserve each.
_BY_RESERVE = (
    Tier(35 * GIB_MIB, 2048, 8, 80, 2.8, 0.1),
    Tier(90 * GIB_MIB, 8192, 160, 160, 9.5, 0.5),
    Tier(160 * GIB_MIB, 8192, 256, 256, 12, 0.5),
    Tier(float("inf"), 16384, 512, 512, 32, 0),
)
_FIRST = (Tier(25_000, 2048, 8, 80), Tier(float("inf"), 8192, 160, 160))


@dataclass(frozen=True, slots=True)
class SglangRules:
    """The rules of the releases from `name` on.

    tiers: defaults by device. reserve: see above. prefill_graphs: graphs of prefill steps take room
    by default. clips_graphs: no graph has more sequences than max_running_requests.
    auto_strategy: how states are cached by default; None: by page size and overlap. shrinks_aiter:
    on AMD's GPUs sequences of more than 8,192 tokens leave 0.85 of the fraction.
    """

    name: str
    tiers: tuple[Tier, ...]
    reserve: Reserve = "parts"
    prefill_graphs: bool = True
    clips_graphs: bool = True
    auto_strategy: Strategy | None = None
    shrinks_aiter: bool = True

    @property
    def since(self) -> tuple[int, ...]:
        """The first release with these rules, as numbers."""
        return _release(self.name)

    def tier_of(self, device_mib: float) -> Tier:
        """The tier of a device."""
        return next(tier for tier in self.tiers if device_mib < tier.below_mib)


V0_5_23 = SglangRules("0.5.23", _tiers((4096, 48, 160)))
V0_5_17 = replace(V0_5_23, name="0.5.17", tiers=_tiers((2048, 24, 80)), clips_graphs=False)
V0_5_10 = replace(V0_5_17, name="0.5.10", auto_strategy="no_buffer")
V0_5_6 = replace(V0_5_10, name="0.5.6", prefill_graphs=False)
V0_5_0 = replace(V0_5_6, name="0.5.0", tiers=_tiers((2048, 16, 80)), shrinks_aiter=False)
V0_4_10 = replace(V0_5_0, name="0.4.10", tiers=_BY_RESERVE, reserve="tiers")
V0_4_6 = replace(V0_4_10, name="0.4.6", tiers=_FIRST, reserve="shares_up_to_80_gib")
V0_4_0 = replace(V0_4_6, name="0.4.0", reserve="shares")
VERSIONS = (V0_4_0, V0_4_6, V0_4_10, V0_5_0, V0_5_6, V0_5_10, V0_5_17, V0_5_23)
NEWEST = V0_5_23
_NUMBER = re.compile(r"v?(\d+(?:\.\d+){1,2})(?:[.\w+-]*)?")


def _release(name: str) -> tuple[int, ...]:
    match = _NUMBER.fullmatch(name.strip())
    return tuple(int(number) for number in match[1].split(".")) if match else ()


def sglang_version(name: str, where: str = "engine_version") -> SglangRules:
    """The rules of a release such as "0.4.10" or "0.5.12.post1"; InputError for what is none, or
    older than all that are known.
    """
    wanted = _release(name)
    found = next((each for each in reversed(VERSIONS) if each.since <= wanted), None)
    if found is None:
        raise InputError(
            "not a known version of SGLang",
            where=where,
            value=repr(name),
            limit=f"from {VERSIONS[0].name} on, such as {NEWEST.name}",
        )
    return found
