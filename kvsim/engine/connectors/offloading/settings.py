"""Settings of vLLM's offloading connector, with sizes converted to numbers of chunks."""

from collections.abc import Mapping
from typing import NamedTuple

from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence

NO_LIMITS: tuple[int | None, int | None] = (None, None)


class OffloadedGroup(NamedTuple):
    """A layer group with KV that is offloaded.

    block_tokens: tokens in a block. chunk_blocks: blocks in a chunk. block_bytes: bytes copied for
    one block, on the first stage of a pipeline. reach_tokens: tokens that attention looks back;
    None: to the start; 0: a recurrent state. chunked: attention looks back only to the last
    multiple of reach_tokens. drafts: the group has layers of a drafter, which may write the last
    chunk again.
    """

    block_tokens: int
    chunk_blocks: int
    block_bytes: int
    reach_tokens: int | None = None
    chunked: bool = False
    drafts: bool = False

    @property
    def chunk_tokens(self) -> int:
        """Tokens in a chunk."""
        return self.block_tokens * self.chunk_blocks

    def chunks_to_store(self, tokens: int, prompt_tokens: int, *, done: bool) -> int:
        """Number of chunks among the first `tokens` tokens that are final: nothing will write them
        again.
        """
        num = tokens // self.chunk_tokens
        return max(0, num - 1) if self.drafts and tokens > prompt_tokens and not done else num

    @property
    def recurrent(self) -> bool:
        """Whether a chunk holds the recurrent state at its end, instead of KV of its tokens."""
        return self.reach_tokens == 0

    @property
    def slides(self) -> bool:
        """Whether the group has a sliding window."""
        return bool(self.reach_tokens) and not self.chunked

    @property
    def reach_chunks(self) -> int:
        """Number of chunks that a hit needs at its end, if it ends with a chunk; 0: all chunks."""
        if self.reach_tokens is None:
            return 0
        return max(1, ceil_div(self.reach_tokens, self.chunk_tokens))

    def chunks_below(self, tokens: int) -> int:
        """Number of last chunks that a hit of `tokens` tokens needs; it may end inside a chunk."""
        if not self.slides or self.reach_tokens is None:
            return self.reach_chunks
        beyond = -tokens % self.chunk_tokens
        return max(self.reach_chunks, ceil_div(self.reach_tokens - 1 + beyond, self.chunk_tokens))


class OffloadSettings(NamedTuple):
    """Settings of the connector. groups: the device's layer groups.

    slots: chunks in host memory. policy: "lru" or "arc". prompt_only: generated tokens are not
    stored. sync_load_budget_bytes: a step waits for loads of at most this many bytes in sum.
    prefix_caching: whether the device has a prefix cache. retention_tokens: interval at which
    blocks of windows are cached, see the device's option; None: all blocks are. alignment_tokens:
    hits of several groups end at its multiples; 0: anywhere. host_bytes: size of the pool, for
    reports. limits: max_load_tokens and max_offload_tokens by request. synchronous: each step waits
    for its loads and for the stores of the step before it. kind: the tier's kind, for reports.
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
        """Bytes copied for one token, over all layer groups."""
        return sum(group.block_bytes / group.block_tokens for group in self.groups)

    def no_blocks(self) -> list[int]:
        """Number of blocks in each layer group of an empty copy: zeros."""
        return [0] * len(self.groups)

    def only(self, group: int) -> list[int]:
        """Number of blocks in each layer group of a copy of one block of `group`."""
        counts = self.no_blocks()
        counts[group] = 1
        return counts

    def bytes_of(self, counts: list[int]) -> int:
        """Bytes of a copy of counts[g] blocks of each layer group g."""
        return sum(num * group.block_bytes for num, group in zip(counts, self.groups, strict=True))

    @property
    def has_reach(self) -> bool:
        """Whether some layers do not attend to the start: windows, or recurrent states."""
        return any(group.reach_tokens is not None for group in self.groups)

    @property
    def state_tokens(self) -> int:
        """Number of tokens between two stored recurrent states; 0 if there are none."""
        return max((group.chunk_tokens for group in self.groups if group.recurrent), default=0)

    def ends_anew(self, group: OffloadedGroup) -> bool:
        """Whether the group caches its window's blocks at each position where hits may end.

        It then stores those at the end of a finished sequence too.
        """
        aligned = self.alignment_tokens
        dense = group.slides and self.retention_tokens is None and not group.drafts
        return dense and aligned > 0 and aligned % group.block_tokens == 0

    def limit_of(self, seq: Sequence) -> tuple[int | None, int | None]:
        """(max_load_tokens, max_offload_tokens) of a request; None: no such limit."""
        return self.limits.get(seq.request.id, NO_LIMITS) if self.limits else NO_LIMITS
