"""Settings of vLLM's Simple connector, with sizes converted to numbers of blocks."""

from typing import NamedTuple


class SimpleGroup(NamedTuple):
    """Layers with one block table. kind: groups of one kind are looked up together. reach_tokens:
    tokens back to which attention reaches; None: to the start; 0: a recurrent state. drops: the
    last block of each hit is dropped, since the drafter's layers must compute it again.
    """

    kind: int = 0
    reach_tokens: int | None = None
    drops: bool = False


class SimpleSettings(NamedTuple):
    """Settings of the connector.

    block_tokens, block_bytes: size of a device block, over all layers. host_blocks: blocks in host
    memory, including the null block. lazy: store only blocks that the device will evict soon, found
    among the next lazy_blocks free blocks in each step; else store all computed blocks. host_bytes:
    size of host memory, for reports. groups: the device's layer groups.
    """

    block_tokens: int
    block_bytes: int
    host_blocks: int
    lazy: bool = False
    lazy_blocks: int = 0
    host_bytes: int = 0
    groups: tuple[SimpleGroup, ...] = (SimpleGroup(),)
