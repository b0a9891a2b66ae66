"""The interface of a store of K and V."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import KvMemory
from kvsim.backend.devices.staging import Staging
from kvsim.backend.step import Batch, Copy, HostSwap, Move, TierCopy, TokenSpan
from kvsim.backend.stores.host import HostMemory
from kvsim.plumbing.errors import InvariantError


class Address(NamedTuple):
    """Addresses of K and V of one layer, for a kernel.

    Row t of span i is at element `offset[i] + t * kv_dim` of its base (key or value). With a table
    it is at `(table[i, t // page] * page + t % page) * kv_dim`.

    key, value: the bases. key_offset, value_offset: int64 [spans], None with a table.
    table: int32 [spans, pages], None without one. page: slots a page, 0 without a table.
    """

    key: Tensor
    value: Tensor
    key_offset: Tensor | None = None
    value_offset: Tensor | None = None
    table: Tensor | None = None
    page: int = 0


class FixedPlaces(Protocol):
    """KV addresses of a step's spans in tensors at fixed memory, for a captured step."""

    def clear(self) -> None:
        """Point every span at the slots that no sequence uses."""

    def load(self, index: int, span: TokenSpan) -> None:
        """Set span `index` of the step to `span`, effective with the next `Staging.send`."""

    def address(self, layer: int) -> Address:
        """The address of a layer, as `TensorStore.address`."""
        ...


class TensorStore(ABC):
    """K and V of every layer. A step: `begin`, then `write` and `read` (or a kernel that goes by
    `address`) layer by layer; moves come before `begin`.

    host: where swapped sequences are kept. memory: of the device, for K and V alone. captures:
    whether it has places for captured steps.
    """

    captures: bool = False

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.host = HostMemory(device)
        self.memory: KvMemory = device_of(device).kv_memory()

    @abstractmethod
    def begin(self, batch: Batch) -> None:
        """Take the KV addresses of a step's spans; InvariantError if a span exceeds its memory."""

    @abstractmethod
    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Keep the new tokens' key and value, [tokens, kv_heads, head_dim], in `batch` order."""

    @abstractmethod
    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        """K and V [context, kv_heads, head_dim] of span `index`, oldest token first."""

    def read_padded(self, layer: int, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """K and V [spans, longest, kv_heads, head_dim] of these spans; beyond a span's own context
        there may be anything.
        """
        rows = [self.read(layer, index) for index in indices]
        keys, values = ([row[part] for row in rows] for part in (0, 1))
        return pad_sequence(keys, batch_first=True), pad_sequence(values, batch_first=True)

    def receive(self, key: Tensor, value: Tensor) -> None:
        """Take the tensors of the next layer that a kernel will write. Only a store without memory
        of its own for K and V does anything, before `address`.
        """
        return

    def locate(self) -> None:
        """Copy the addresses of the step's spans to the device, for a kernel that uses `address`;
        after `begin`.
        """
        return

    @abstractmethod
    def address(self, layer: int) -> Address:
        """The addresses of this layer for the spans of the step; after `locate`."""

    def place_bytes(self, max_context: int) -> int:
        """Bytes of a staging buffer for the addresses of a span of max_context tokens."""
        return 0

    def fixed_places(self, spans: int, max_context: int, staging: Staging) -> FixedPlaces:
        """Fixed addresses for `spans` spans of at most `max_context` tokens each."""
        raise InvariantError(f"{type(self).__name__} has no places for captured steps")

    def move(self, move: Move) -> None:
        """Move slots within the device, or between it and host memory, in all layers."""
        if isinstance(move, Copy):
            self.copy(move)
        elif isinstance(move, TierCopy):
            self.offload(move)
        elif move.to_host:
            self.host.put(move.id, self.gather(move))
        else:
            self.scatter(move, self.host.take(move.id, move.slots))

    def copy(self, copy: Copy) -> None:
        """Move slots within the device."""
        raise InvariantError(f"{type(self).__name__} copies by itself, got {copy}")

    def offload(self, copy: TierCopy) -> None:
        """Move whole blocks to the host's pool, or back."""
        raise InvariantError(f"{type(self).__name__} has no pool of blocks in host memory")

    def gather(self, swap: HostSwap) -> Tensor:
        """K and V [layers, 2, slots, kv_dim] of the swap's place, which may be overwritten then."""
        raise InvariantError(f"{type(self).__name__} keeps nothing to swap, got {swap}")

    def scatter(self, swap: HostSwap, rows: Tensor) -> None:
        """Write `rows`, shaped as `gather` gave them, to the swap's place."""
        raise InvariantError(f"{type(self).__name__} keeps nothing to swap, got {swap}")

    def release(self, id: str) -> None:
        """Free what the store holds for sequence `id`, which has finished."""
        self.host.drop(id)

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Bytes of K and V memory the store holds now, valid or not."""


def must_fit(span_id: str, context: int, room: int) -> None:
    """Raise InvariantError unless a span's context fits into its allocated slots."""
    if context > room:
        raise InvariantError(f"sequence {span_id!r} has room for {room} slots and needs {context}")
