"""The layout of a model's KV cache: bytes of one token, layer group by layer group."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from kvsim.plumbing.errors import InputError

GroupKind = Literal["full", "sliding", "mla", "recurrent"]


class OwnBlock(NamedTuple):
    """A block that a cache has whatever the engine's: tokens it covers, bytes it takes."""

    tokens: int
    bytes: int


class Reading(NamedTuple):
    """Tokens that attention reads of a cache of its own kind.

    tokens: most tokens read, the newest or picked ones of a sequence, None: all. pair_flops: of one
    query and one token, in one layer.
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
    draft_layers: of the layers, those of a drafter. chunk_tokens: local attention frees the blocks
    before the current chunk of chunk_tokens tokens; None if it does not. own_block: of one layer,
    where the engine's block size does not count; bytes_per_token is then the share of a token.
    reading: of layers with own blocks.
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
    """All groups of a model. One token in a sequence shorter than every window costs the sum."""

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
        """The layout of one of `num` GPUs that share the tokens of each sequence: one in `num`
        whole tokens, on average.

        InputError if layers do not keep all tokens, or differ in them.
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
