"""Attention on any device: gather by the store, then scaled_dot_product_attention. It goes span by
span, or with all decoding spans together.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch
from kvsim.backend.stores.store import TensorStore
from kvsim.backend.transformer.rope import Turn, rotate, turns


class GatherAttention:
    """An `Attend` for one step; every span attends to its own cache and, causally, to itself.

    together: spans of one token are computed in one call, padded to the longest context.
    """

    def __init__(
        self, shape: Shape, store: TensorStore, batch: Batch, *, together: bool = False
    ) -> None:
        self.shape = shape
        self.store = store
        self.batch = batch
        self._turn: Turn | None = None
        self._masks: dict[tuple[int, int], Tensor] = {}
        spans = batch.spans if together else ()
        self._together = [index for index, span in enumerate(spans) if len(span.tokens) == 1]
        self._seen: Tensor | None = None

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Attend`."""
        if self._turn is None:
            self._turn = turns(self.batch.positions, self.shape.head_dim, query.dtype)
        query, key = rotate(query, self._turn), rotate(key, self._turn)
        self.store.write(layer, key, value)
        result = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        begin = self.batch.begin
        if self._together:
            alone = [begin[index] for index in self._together]
            result[alone] = self._decode(layer, query[alone])
        for index in sorted({*range(len(self.batch.spans))} - {*self._together}):
            rows = slice(begin[index], begin[index + 1])
            keys, values = self.store.read(layer, index)
            result[rows] = self._one(query[rows], keys, values, self.batch.start[index])
        return result

    def _decode(self, layer: int, query: Tensor) -> Tensor:
        """The spans of one token: query [spans, heads, head_dim]."""
        keys, values = self.store.read_padded(layer, self._together)
        if self._seen is None:
            self._seen = self._seen_keys(keys.shape[1], query.device)
        unseen = ~self._seen[:, :, None, None]
        # What pads a context may be anything, even no number.
        keys, values = (rows.masked_fill(unseen, 0).transpose(1, 2) for rows in (keys, values))
        grouped = query.view(len(query), self.shape.kv_heads, self.shape.group, -1)
        mask = self._seen[:, None, None, :]
        out = scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
        return out.reshape(query.shape)

    def _seen_keys(self, longest: int, device: torch.device) -> Tensor:
        """Whether a span of one token sees a position, [spans, longest]."""
        contexts = [self.batch.context[index] for index in self._together]
        context = torch.tensor(contexts, device=device)[:, None]
        position = torch.arange(longest, device=device)[None, :]
        seen = position < context
        if self.shape.window is not None:
            seen &= position >= context - self.shape.window
        return seen

    def _one(self, query: Tensor, key: Tensor, value: Tensor, start: int) -> Tensor:
        """One span: query [new, heads, head_dim] against key, value [context, kv_heads, ...]."""
        new, context, group = len(query), len(key), self.shape.group
        window = self.shape.window
        if new == 1:
            if window is not None:
                key, value = key[-window:], value[-window:]
            # The group's query heads become query rows of their KV head: no repeated keys, and
            # less than half the time of enable_gqa.
            rows = query.view(self.shape.kv_heads, group, self.shape.head_dim)
            out = scaled_dot_product_attention(
                rows[None], key.transpose(0, 1)[None], value.transpose(0, 1)[None]
            )
            return out.reshape(1, self.shape.heads, self.shape.head_dim)
        grouped = query.reshape(new, self.shape.kv_heads, group, -1).permute(1, 2, 0, 3)
        # is_causal is aligned to the top left corner: right only where no prefix stands before.
        narrow = window is not None and context > window
        mask = self._mask(new, context, query.device) if start or narrow else None
        out = scaled_dot_product_attention(
            grouped,
            key.permute(1, 0, 2)[:, None].expand(-1, group, -1, -1),
            value.permute(1, 0, 2)[:, None].expand(-1, group, -1, -1),
            attn_mask=mask,
            is_causal=mask is None,
        )
        return out.permute(2, 0, 1, 3).flatten(1, 2)

    def _mask(self, new: int, context: int, device: torch.device) -> Tensor:
        key = (new, context)
        if key not in self._masks:
            ones = torch.ones(new, context, dtype=torch.bool, device=device)
            mask = ones.tril(context - new)
            if self.shape.window is not None:
                mask = mask.triu(context - new + 1 - self.shape.window)
            self._masks[key] = mask
        return self._masks[key]
