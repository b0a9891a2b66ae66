"""What every placement answers: an address space, and who stands where in it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

from kvsim.errors import InvariantError
from kvsim.memory.allocator import MemorySpec
from kvsim.options import Options


class Placement(NamedTuple):
    """A region handed out: its address, and the bytes it really has (>= the bytes asked)."""

    address: int
    granted: int


class PlacementOptions(Options):
    """Options of one placement; its fields are the keys beside `kind` in a `placement` table."""

    def build(self, memory: MemorySpec) -> "Arena":
        """A fresh arena over the whole pool; InputError if the options do not fit the pool."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


class Arena(ABC):
    """One address space and the regions in it. All sizes and addresses are bytes, sizes >= 1.

    capacity_bytes: the space. metadata_bytes: the odd end that no request can ever be given.
    free_bytes: what is neither live nor metadata. version: grows with every change.
    """

    capacity_bytes: int
    metadata_bytes: int
    free_bytes: int
    version: int = 0

    @abstractmethod
    def allocate(self, size: int) -> Placement | None:
        """Place a region of at least `size` bytes; None, and nothing changed, if there is no
        place.
        """

    @abstractmethod
    def free(self, address: int) -> None:
        """Take back the live region at `address`."""

    @abstractmethod
    def fits(self, size: int) -> bool:
        """Whether `allocate(size)` would find a place now. Mutates nothing."""

    @abstractmethod
    def can_ever_fit(self, size: int) -> bool:
        """Whether `allocate(size)` would find a place in the empty arena."""

    @abstractmethod
    def extend_in_place(self, address: int, new_size: int) -> bool:
        """Let the live region at `address` have `new_size` bytes where it stands; False, and
        nothing changed, if its neighbourhood does not allow it.
        """

    @property
    @abstractmethod
    def largest_hole(self) -> int:
        """The largest size that fits now; 0 if none."""

    @abstractmethod
    def holes(self) -> Iterator[tuple[int, int]]:
        """(address, bytes) of the free stretches, in order of address."""

    @abstractmethod
    def live(self) -> Iterator[tuple[int, int]]:
        """(address, granted bytes) of the live regions, in order of address."""

    @abstractmethod
    def granted(self, address: int) -> int:
        """Bytes granted to the live region at `address`."""

    @abstractmethod
    def clone(self) -> Self:
        """An independent arena in the same state, for asking what would happen."""

    def restore(self, earlier: Self) -> None:
        """Be again as this arena was when `earlier` was cloned from it; `earlier` is used up."""
        version = self.version
        vars(self).update(vars(earlier))
        self.version = version + 1

    def fits_all(self, sizes: Sequence[int]) -> bool:
        """Whether all of `sizes` would find places, one after the other. Mutates nothing."""
        if len(sizes) == 1:
            return self.fits(sizes[0])
        trial = self.clone()
        return all(trial.allocate(size) for size in sizes)

    def check(self) -> None:
        """Raise InvariantError unless live regions and holes are disjoint and fill the space."""
        stretches = sorted([*self.live(), *self.holes()])
        for (address, size), (following, _) in pairwise(stretches):
            if address + size > following:
                raise InvariantError(f"the region at {address} runs into the one at {following}")
        if any(size <= 0 for _, size in stretches):
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
    """The error for an address where nothing lives."""
    return InvariantError(f"no live region at address {address}")
