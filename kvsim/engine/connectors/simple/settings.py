"""Settings of vLLM's Simple connector, resolved to counts."""

from typing import NamedTuple


class SimpleSettings(NamedTuple):
    """block_tokens, block_bytes: of a block of the device, all layers together. host_blocks: in
    host memory, one of them nobody's. lazy: what the device is about to forget is stored, of the
    next lazy_blocks free blocks in each step; else all that has been computed.
    host_bytes: of host memory, for reports.
    """

    block_tokens: int
    block_bytes: int
    host_blocks: int
    lazy: bool = False
    lazy_blocks: int = 0
    host_bytes: int = 0
