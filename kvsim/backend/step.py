"""One engine step as the backend sees it: spans of tokens, each with the place of its KV."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.devices.staging import Put
from kvsim.plumbing.errors import InputError


class TokenSpan(NamedTuple):
    """New tokens of one sequence, computed in one step after the `start` tokens in the cache.

    The address of its KV depends on the kind of store. `blocks` is the block table (physical ids,
    in order); `slot`, the start of its contiguous buffer; `capacity`, the slots a buffer of its own
    must have. A store without memory needs none of them.
    """

    id: str
    tokens: Sequence[int]
    start: int
    blocks: Sequence[int] = ()
    slot: int | None = None
    capacity: int | None = None

    @property
    def context(self) -> int:
        """Tokens in the sequence's cache when the step is done."""
        return self.start + len(self.tokens)


class Copy(NamedTuple):
    """A copy of `slots` slots before the step.

    Paged, it copies the first ones of block `source` to block `target`; contiguous, the range from
    slot `source` to that from `target`.
    """

    source: int
    target: int
    slots: int


class HostSwap(NamedTuple):
    """A swap before the step: the first `slots` slots of a sequence are copied to host memory, or
    back from there.

    blocks, slot, capacity: its place on the device, as in `TokenSpan`.
    """

    id: str
    slots: int
    to_host: bool
    blocks: Sequence[int] = ()
    slot: int | None = None
    capacity: int | None = None


class TierCopy(NamedTuple):
    """A copy before the step: whole blocks to slots of the host's pool, or back from there.

    blocks, slots: as many of each; a slot holds one block.
    """

    blocks: tuple[int, ...]
    slots: tuple[int, ...]
    to_host: bool


Move = Copy | HostSwap | TierCopy


@dataclass(frozen=True, slots=True)
class Batch:
    """The spans of a step, packed: tokens of all spans one after the other, no padding.

    token_ids, positions: int64 [tokens]. last: int64 [spans], the row of each span's last token.
    begin: rows at which spans begin, and the end, [spans + 1]. start, context: per span. put:
    brings an array to the device, as it brought these.
    """

    spans: tuple[TokenSpan, ...]
    token_ids: Tensor
    positions: Tensor
    last: Tensor
    begin: list[int]
    start: list[int]
    context: list[int]
    put: Put

    @classmethod
    def pack(cls, spans: Sequence[TokenSpan], put: Put = torch.from_numpy) -> Self:
        """Pack at least one span of at least one token each."""
        lengths = [len(span.tokens) for span in spans]
        if not lengths or min(lengths) < 1:
            raise InputError("a step needs spans of at least one token each", where="step")
        begin = [0, *accumulate(lengths)]
        total = begin[-1]
        ids = np.fromiter((t for span in spans for t in span.tokens), np.int64, total)
        start = np.fromiter((span.start for span in spans), np.int64, len(spans))
        offset = np.asarray(begin[:-1])
        positions = np.arange(total) + np.repeat(start - offset, lengths)
        return cls(
            spans=tuple(spans),
            token_ids=put(ids),
            positions=put(positions),
            last=put(np.asarray(begin[1:]) - 1),
            begin=begin,
            start=[span.start for span in spans],
            context=[span.context for span in spans],
            put=put,
        )
