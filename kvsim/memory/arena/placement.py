"""The interface of placements: an address space, and the regions allocated in it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

from kvsim.memory.options import MemorySpec, StoreKind
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.options import Options


class Placement(NamedTuple):
    """A region handed out: its address, and the bytes it really has (>= the bytes asked)."""

    address: int
    granted: int


class PlacementOptions(Options):
    """Options of one placement; the fields are the keys of a `placement` table other than
    `kind`.
    """

    @property
    def store(self) -> StoreKind | None:
        """The torch store for whole buffers with this placement: see `AllocatorOptions.store`."""
        return "slots"

    def build(self, memory: MemorySpec) -> "Arena":
        """A fresh arena over the whole pool; InputError if the options do not fit the pool."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


class ArenaListener(Protocol):
    """Is notified of allocations and frees in an arena. Addresses and sizes are bytes."""

    def allocated(self, address: int, size: int, owner: str) -> None:
        """A region for `size` bytes was allocated at `address`."""

    def extended(self, address: int, size: int) -> None:
        """The region at `address` was extended to `size` bytes."""

    def freed(self, address: int) -> None:
        """The region at `address` was freed."""

    def device(self, action: str, address: int, size: int) -> None:
        """Torch's allocator called the device. action: "segment_alloc", "segment_free",
        "segment_map" or "segment_unmap".
        """

    def restored(self, version: int) -> None:
        """Undo all events after the arena had this version."""


class Arena(ABC):
    """One address space and the regions in it. All sizes and addresses are bytes, sizes >= 1.

    capacity_bytes: the space. metadata_bytes: the odd end that no request can ever be given.
    free_bytes: bytes that are neither allocated nor metadata. version: grows with every change. A
    subclass chooses addresses (`_place`, `_displace`, `_extend`); this class does the accounting.
    """

    capacity_bytes: int
    metadata_bytes: int
    free_bytes: int
    version: int = 0
    listener: ArenaListener | None = None

    def allocate(self, size: int, owner: str = "") -> Placement | None:
        """Place a region of at least `size` bytes; None, and nothing changed, if there is no place.

        owner: name of its owner, for the listener.
        """
        self.version += 1
        placed = self._place(size)
        if placed is None:
            self.version -= 1
            return None
        self.free_bytes -= placed.granted
        if self.listener is not None:
            self.listener.allocated(placed.address, size, owner)
        return placed

    def free(self, address: int) -> None:
        """Take back the live region at `address`."""
        self.version += 1
        self.free_bytes += self._displace(address)
        if self.listener is not None:
            self.listener.freed(address)

    def extend_in_place(self, address: int, new_size: int) -> bool:
        """Resize the live region at `address` to `new_size` bytes in place.

        False, and nothing changed, if its neighbours do not allow it.
        """
        held = self.granted(address)
        if new_size > held:
            if not self._extend(address, new_size):
                return False
            self.version += 1
            self.free_bytes -= self.granted(address) - held
        if self.listener is not None:
            self.listener.extended(address, new_size)
        return True

    @abstractmethod
    def _place(self, size: int) -> Placement | None:
        """`allocate` without accounting."""

    @abstractmethod
    def _displace(self, address: int) -> int:
        """`free` without the accounting; returns the bytes that were granted."""

    def _extend(self, address: int, new_size: int) -> bool:
        """`extend_in_place` beyond the granted bytes, without the accounting."""
        return False

    @abstractmethod
    def fits(self, size: int) -> bool:
        """Whether `allocate(size)` would find a place now. Mutates nothing."""

    @abstractmethod
    def can_ever_fit(self, size: int) -> bool:
        """Whether `allocate(size)` would find a place in the empty arena."""

    @property
    @abstractmethod
    def largest_hole(self) -> int:
        """The largest size that fits now; 0 if none."""

    @abstractmethod
    def holes(self) -> Iterator[tuple[int, int]]:
        """(address, bytes) of the free ranges, in order of address."""

    @abstractmethod
    def live(self) -> Iterator[tuple[int, int]]:
        """(address, granted bytes) of the live regions, in order of address."""

    @abstractmethod
    def granted(self, address: int) -> int:
        """Bytes granted to the live region at `address`."""

    @abstractmethod
    def clone(self) -> Self:
        """An independent arena in the same state, without a listener, to try allocations on."""

    def restore(self, earlier: Self) -> None:
        """Roll back to the state in which `earlier` was cloned from this arena; `earlier` must not
        be used afterwards.
        """
        version, listener = self.version, self.listener
        vars(self).update(vars(earlier))
        self.version, self.listener = version + 1, listener
        if listener is not None:
            listener.restored(earlier.version)

    def _twin(self) -> Self:
        """A shallow copy without a listener; `clone` copies its containers."""
        twin = self.__class__.__new__(self.__class__)
        vars(twin).update(vars(self))
        twin.listener = None
        return twin

    def fits_all(self, sizes: Sequence[int]) -> bool:
        """Whether all of `sizes` would find places, one after the other. Mutates nothing."""
        if len(sizes) == 1:
            return self.fits(sizes[0])
        if sizes and min(sizes) == max(sizes):
            places = self.places_for(sizes[0], len(sizes))
            if places is not None:
                return places >= len(sizes)
        trial = self.clone()
        return all(trial.allocate(size) for size in sizes)

    def places_for(self, size: int, most: int) -> int | None:
        """Number of regions of `size` bytes that could be allocated now in sequence, at most
        `most`.

        The number does not fall when regions are freed in between. None: only a trial allocation
        can say.
        """
        return None

    def check(self) -> None:
        """Raise InvariantError unless live regions and holes are disjoint and fill the space."""
        ranges = sorted([*self.live(), *self.holes()])
        for (address, size), (following, _) in pairwise(ranges):
            if address + size > following:
                raise InvariantError(f"the region at {address} runs into the one at {following}")
        if any(size <= 0 for _, size in ranges):
            raise InvariantError("a region is empty")
        total = sum(size for _, size in self.holes())
        if total != self.free_bytes:
            raise InvariantError(f"holes sum to {total}, not to the {self.free_bytes} free bytes")
        held = sum(size for _, size in self.live())
        if held + total + self.metadata_bytes != self.capacity_bytes:
            raise InvariantError(
                f"live {held} + free {total} + metadata {self.metadata_bytes} bytes"
                f" are not the capacity of {self.capacity_bytes}"
            )


def unknown_region(address: int) -> InvariantError:
    """The error for an address without an allocated region."""
    return InvariantError(f"no live region at address {address}")
