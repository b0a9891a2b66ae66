"""Small, simple allocators (some broken on purpose) that drive random schedules."""

from abc import ABC, abstractmethod
from typing import Any

CopyList = list[tuple[int, int, int]]


class RandomPlaces(ABC):
    """An allocator that puts sequences' slots at random places.

    A method returns None if there is no memory; then nothing has changed.
    """

    @abstractmethod
    def grow(self, id: str, valid: int, slots: int) -> CopyList | None:
        """Allocate `slots` slots for `id`, `valid` of them filled; returns the copies to make."""

    @abstractmethod
    def fork(self, parent: str, child: str, valid: int) -> CopyList | None:
        """Give `child` the first `valid` slots of `parent`; returns the copies to make."""

    @abstractmethod
    def release(self, id: str) -> None:
        """Free the memory of `id`, if it has any."""

    @abstractmethod
    def where(self, id: str) -> dict[str, Any]:
        """The place of `id`, in the form of a step record."""

    def share(self, donor: str, id: str, valid: int) -> int:
        """Let `id` share a prefix of `donor`, and return its length; 0 if nothing is shared."""
        return 0


class Blocks(RandomPlaces):
    """Paged: a free list, reference counts, copy on write; block 0 is never used. Broken: every
    ninth allocated block stays in the free list, so that two sequences get it.
    """

    def __init__(self, num_blocks: int, block_size: int, *, broken: bool = False) -> None:
        self.size = block_size
        self.free = list(range(1, num_blocks + 1))
        self.references = [0] * (num_blocks + 1)
        self.tables: dict[str, list[int]] = {}
        self.broken = broken
        self.handed_out = 0

    def grow(self, id: str, valid: int, slots: int) -> CopyList | None:
        table = self.tables.setdefault(id, [])
        missing = -(-slots // self.size) - len(table)
        first = valid // self.size  # the block written next, if it is there
        shared = first < len(table) and self.references[table[first]] > 1
        if max(missing, 0) + shared > len(self.free):
            return None
        copies: CopyList = []
        if shared:
            source, target = table[first], self._take()
            self.references[source] -= 1
            table[first] = target
            copies.append((source, target, valid % self.size))
        table.extend(self._take() for _ in range(missing))
        return copies

    def fork(self, parent: str, child: str, valid: int) -> CopyList | None:
        self.tables[child] = self.tables.get(parent, [])[: -(-valid // self.size)]
        for block in self.tables[child]:
            self.references[block] += 1
        return []

    def share(self, donor: str, id: str, valid: int) -> int:
        self.fork(donor, id, valid // self.size * self.size)
        return valid // self.size * self.size

    def release(self, id: str) -> None:
        for block in self.tables.pop(id, []):
            self.references[block] -= 1
            if self.references[block] <= 0 and block not in self.free:
                self.free.append(block)

    def where(self, id: str) -> dict[str, Any]:
        return {"blocks": list(self.tables[id])}

    def _take(self) -> int:
        block = self.free.pop(0)
        self.references[block] += 1
        self.handed_out += 1
        if self.broken and self.handed_out % 9 == 0:
            self.free.insert(0, block)
        return block


class Ranges(RandomPlaces):
    """Contiguous buffers, first fit, that double from `first` slots; if `first` is the longest
    sequence, this is max-buffer. Broken: the upper half of each buffer counts as free.
    """

    def __init__(self, num_slots: int, *, first: int, broken: bool = False) -> None:
        self.num_slots = num_slots
        self.first = first
        self.broken = broken
        self.ranges: dict[str, tuple[int, int]] = {}

    def grow(self, id: str, valid: int, slots: int) -> CopyList | None:
        start, capacity = self.ranges.get(id, (0, 0))
        if slots <= capacity:
            return []
        wanted = max(capacity, self.first)
        while wanted < slots:
            wanted *= 2
        target = self._fit(wanted)
        if target is None:
            return None
        self.ranges[id] = (target, wanted)
        return [(start, target, valid)] if valid else []

    def fork(self, parent: str, child: str, valid: int) -> CopyList | None:
        start, capacity = self.ranges[parent]
        target = self._fit(capacity)
        if target is None:
            return None
        self.ranges[child] = (target, capacity)
        return [(start, target, valid)]

    def release(self, id: str) -> None:
        self.ranges.pop(id, None)

    def where(self, id: str) -> dict[str, Any]:
        return {"slot": self.ranges[id][0]}

    def _fit(self, slots: int) -> int | None:
        """Address of the lowest gap of `slots` slots. A growing buffer keeps its old range until
        copied.
        """
        at = 0
        for start, capacity in sorted(self.ranges.values()):
            if start - at >= slots:
                return at
            at = max(at, start + (capacity // 2 if self.broken else capacity))
        return at if self.num_slots - at >= slots else None


class Capacities(RandomPlaces):
    """A separate buffer for each sequence: only its capacity matters, and it cannot fork."""

    def __init__(self, *, first: int) -> None:
        self.first = first
        self.capacities: dict[str, int] = {}

    def grow(self, id: str, valid: int, slots: int) -> CopyList | None:
        capacity = self.capacities.get(id, self.first)
        while capacity < slots:
            capacity *= 2
        self.capacities[id] = capacity
        return []

    def fork(self, parent: str, child: str, valid: int) -> CopyList | None:
        return None

    def release(self, id: str) -> None:
        self.capacities.pop(id, None)

    def where(self, id: str) -> dict[str, Any]:
        return {"capacity": self.capacities[id]}
