"""The layout of a model's KV cache: bytes of one token, layer group by layer group."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from kvsim.plumbing.errors import InputError

GroupKind = Literal["full", "sliding", "mla", "recurrent"]


class OwnBlock(NamedTuple):
    """Size of a cache's block that the engine's block_size does not change: tokens, bytes."""

    tokens: int
    bytes: int


class Reading(NamedTuple):
    """Tokens that a query reads of a cache with blocks of its own size (see OwnBlock).

    tokens: most tokens read, the newest or picked ones of a sequence; None: all. pair_flops: FLOPs
    of one query with one token, in one layer.
    """

    tokens: int | None
    pair_flops: int


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers that keep the same kind of state, on one GPU (after tensor parallelism).

    kind: full attention, sliding window, MLA's compressed latent, or a recurrent state. layers: how
    many real layers. bytes_per_token: KV bytes one token adds over all these layers; 0 for a
    recurrent state. window_tokens: a sliding window keeps only this many newest tokens; None
    otherwise. state_bytes: constant bytes per sequence (recurrent state); 0 otherwise.
    draft_layers: how many of the layers belong to a drafter. chunk_tokens: local attention frees
    the blocks before the current chunk of chunk_tokens tokens; None if it does not. own_block:
    block of one layer, where the engine's block_size does not apply; bytes_per_token is then a
    token's share of this block. reading: what attention reads in layers with own blocks.
    """

    kind: GroupKind
    layers: int
    bytes_per_token: int
    window_tokens: int | None = None
    state_bytes: int = 0
    draft_layers: int = 0
    chunk_tokens: int | None = None
    own_block: OwnBlock | None = None
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class KVLayout:
    """All layer groups of a model's KV cache. A token in a sequence shorter than every window takes
    the sum of their bytes_per_token.
    """

    groups: tuple[KVGroup, ...]

    @property
    def has_own_blocks(self) -> bool:
        """Whether caches come in blocks of their own sizes."""
        return any(group.own_block for group in self.groups)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one more token while it is inside every window."""
        return sum(group.bytes_per_token for group in self.groups)

    def tokens_in(self, capacity_bytes: int) -> int:
        """Tokens that fit into `capacity_bytes`; 0 where layers keep recurrent states alone."""
        each = self.bytes_per_token
        return capacity_bytes // each if each else 0

    def sequence_bytes(self, tokens: int) -> int:
        """Bytes that `tokens` tokens of one sequence need at least, windows and states counted."""
        total = 0
        for group in self.groups:
            kept = tokens if group.window_tokens is None else min(tokens, group.window_tokens)
            total += group.bytes_per_token * kept + (group.state_bytes if tokens else 0)
        return total

    def over_gpus(self, num: int) -> "KVLayout":
        """The layout on one of `num` GPUs under decode context parallelism. Each holds 1 / num of
        the tokens of a sequence, so a token takes 1 / num of its bytes on average.

        InputError for sliding-window or recurrent layers, or bytes that `num` does not divide.
        """
        for group in self.groups:
            if group.kind not in ("full", "mla") or group.bytes_per_token % num:
                raise InputError(
                    "GPUs that share a sequence share layers that keep all tokens",
                    where="model.decode_context_parallel_size",
                    value=num,
                    limit=f"1 for layers of kind {group.kind} with {group.bytes_per_token:,} bytes",
                    remedy="leave it out",
                )
        return KVLayout(
            tuple(replace(g, bytes_per_token=g.bytes_per_token // num) for g in self.groups)
        )
