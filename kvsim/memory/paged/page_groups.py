"""Page groups mapped on demand under contiguous virtual tensors: vAttention (Prabhu et al., ASPLOS
2025).

Every layer has one virtual tensor for keys and one for values (MLA: one for the latent), and each
sequence a range of each. Physical memory is mapped to a range one page group at a time. So a
sequence grows by one page group in every tensor at once, by as many tokens as fit in a page group.
That is paging with large blocks, without a null block and without sharing. The bytes of a page
group that no whole token fills are rounding. At its end a sequence wastes less than one page group
in each tensor.

Mapping takes about 40 us a page group, which vAttention overlaps with the previous step; it costs
no time here.
"""

from typing import Literal

from kvsim.layout import KVLayout
from kvsim.memory.allocator import Allocator
from kvsim.memory.options import AllocatorOptions, MemorySpec
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.assembly import PagedSettings
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import KIB, ceil_div
from kvsim.vllm.grouping import one_table
from kvsim.vllm.rules import BlockRules

VATTENTION = BlockRules("vattention", null_blocks=0)


class PageGroups(AllocatorOptions):
    """vAttention's page groups. page_group_kib: 2048 as CUDA maps memory, or less with vAttention's
    changes to the driver. Layers with a window keep every token.
    """

    page_group_kib: Literal[64, 128, 256, 2048] = 2048

    def build(self, memory: MemorySpec) -> Allocator:
        shape, memory = self.shape(memory), memory._replace(rules=VATTENTION)
        grouping = one_table(memory.layout, shape.block_size)
        return PagedAllocator(memory, shape, grouping, PagedSettings(caching=False))

    def shape(self, memory: MemorySpec) -> BlockShape:
        """The pool in "blocks", each of one page group in every tensor."""
        if any(group.state_bytes for group in memory.layout.groups):
            raise InputError(
                "a recurrent state has no tokens to map page groups for",
                where="allocator.kind",
                value="page-groups",
                remedy="use paged",
            )
        count, token_bytes = tensors(memory.layout)
        page_bytes = self.page_group_kib * KIB
        tokens, row_bytes = page_bytes // token_bytes, count * page_bytes
        rows = memory.capacity_bytes // row_bytes
        if not tokens or not rows:
            raise InputError(
                "no page group in each tensor fits" if not rows else "a page group holds no token",
                where="allocator.page_group_kib",
                value=self.page_group_kib,
                limit=f"{memory.capacity_bytes // count // KIB} KiB of pool a tensor"
                if not rows
                else f"at least {token_bytes} bytes",
                remedy="give the pool more memory or take another size",
            )
        return BlockShape(
            block_size=tokens,
            slot_bytes=memory.layout.bytes_per_token,
            block_bytes=row_bytes,
            num_blocks=rows,
            usable_blocks=rows,
            metadata_bytes=memory.capacity_bytes - rows * row_bytes,
        )


def tensors(layout: KVLayout) -> tuple[int, int]:
    """(number of virtual tensors, bytes of one token in the widest tensor)."""
    count, widest = 0, 0
    for group in layout.groups:
        parts = group.layers * (1 if group.kind == "mla" else 2)
        count += parts
        widest = max(widest, ceil_div(group.bytes_per_token, parts))
    return count, widest
