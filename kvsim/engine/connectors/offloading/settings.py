"""What vLLM's offloading connector is set to, resolved to counts."""

from collections.abc import Mapping
from typing import NamedTuple

from kvsim.sequence import Sequence

NO_LIMITS: tuple[int | None, int | None] = (None, None)


class OffloadedGroup(NamedTuple):
    """A group of layers whose KV is offloaded.

    block_tokens: tokens in a block. chunk_blocks: blocks in a chunk. block_bytes: copied for one
    block. window_tokens: how far it looks back; None: all.
    """

    block_tokens: int
    chunk_blocks: int
    block_bytes: int
    window_tokens: int | None = None

    @property
    def chunk_tokens(self) -> int:
        """Tokens in a chunk."""
        return self.block_tokens * self.chunk_blocks


class OffloadSettings(NamedTuple):
    """groups: of layers, as the device has them. slots: chunks in host memory. policy: "lru" or
    "arc". prompt_only: generated tokens are not stored. sync_load_budget_bytes: a step waits for
    loads of up to so many bytes in sum. prefix_caching: of the device. retention_tokens: of blocks
    of windows, see the device's option; None: all are kept. alignment_tokens: where hits of several
    groups may end. host_bytes: of the pool, for reports. limits: max_load_tokens and
    max_offload_tokens by request. synchronous: each step waits for its loads and for the stores of
    the step before it. kind: of the tier, for reports.
    """

    groups: tuple[OffloadedGroup, ...]
    slots: int
    policy: str = "lru"
    store_threshold: int = 0
    max_tracker_size: int = 64_000
    prompt_only: bool = True
    sync_load_budget_bytes: int = 0
    prefix_caching: bool = True
    retention_tokens: int | None = 0
    alignment_tokens: int = 1
    host_bytes: int = 0
    limits: Mapping[str, tuple[int | None, int | None]] | None = None
    synchronous: bool = False
    kind: str = "vllm-offloading"

    @property
    def bytes_per_token(self) -> float:
        """Copied for one token, all groups together."""
        return sum(group.block_bytes / group.block_tokens for group in self.groups)

    def limit_of(self, seq: Sequence) -> tuple[int | None, int | None]:
        """max_load_tokens and max_offload_tokens of a request, None: it has no such limit."""
        return self.limits.get(seq.request.id, NO_LIMITS) if self.limits else NO_LIMITS
