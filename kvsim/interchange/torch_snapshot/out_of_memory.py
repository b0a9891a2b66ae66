"""How much of an out-of-memory error is fragmentation.

Before torch gives up, it returns its free segments to the device and asks the device again. The
rest, which no tensor uses, is in segments with live tensors: a request that fits none of these
pieces needs a new segment. So with

    missing    = bytes asked for - bytes that the device had free
    fragmented = the part of missing that lay unused in torch's segments

the error is fragmentation if the unused bytes cover all that was missing, else lack of memory for
the rest.
"""

from typing import NamedTuple


class OutOfMemory(NamedTuple):
    """A request of torch that failed; figures in bytes.

    asked: for. device_free: what the device had free. unused: what torch had of the device, and no
    tensor. largest_free: the largest piece of it; None: unknown.
    """

    device: int
    asked: int
    device_free: int
    unused: int
    largest_free: int | None = None

    @property
    def missing(self) -> int:
        """Bytes that the device lacked."""
        return max(self.asked - self.device_free, 0)

    @property
    def fragmented(self) -> int:
        """Missing bytes that were unused in torch's segments."""
        return min(self.missing, self.unused)
