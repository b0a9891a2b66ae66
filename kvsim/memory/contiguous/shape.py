"""Bytes of a contiguous buffer as a function of its tokens."""

from dataclasses import dataclass

from kvsim.layout import KVLayout


@dataclass(frozen=True, slots=True)
class BufferShape:
    """Bytes of a contiguous buffer: token_bytes a slot, and state_bytes once.

    A buffer stores every token in every layer. Slots outside a window are inside the buffer and
    cannot be freed, so windows save nothing here.
    """

    token_bytes: int
    state_bytes: int

    @classmethod
    def of(cls, layout: KVLayout) -> "BufferShape":
        """One buffer for all layers of a model."""
        return cls(layout.bytes_per_token, sum(group.state_bytes for group in layout.groups))

    @classmethod
    def by_layer(cls, layout: KVLayout) -> "tuple[BufferShape, ...]":
        """One buffer for each layer, in order; they sum to `of(layout)`."""
        shapes = []
        for group in layout.groups:
            for layer in range(group.layers):
                token = _share(group.bytes_per_token, group.layers, layer)
                state = _share(group.state_bytes, group.layers, layer)
                shapes.append(cls(token, state))
        return tuple(shapes)

    def bytes(self, tokens: int) -> int:
        """Bytes of a buffer of `tokens` slots."""
        return self.token_bytes * tokens + self.state_bytes

    def unit_bytes(self, tokens: int) -> int:
        """Bytes of a placement unit of `tokens` slots; at least 1, the state where slots cost
        nothing.
        """
        return (self.token_bytes or self.state_bytes or 1) * tokens


def _share(total: int, parts: int, index: int) -> int:
    """Part number `index` when `total` is divided into `parts` integers that differ by at most
    1.
    """
    return total * (index + 1) // parts - total * index // parts
