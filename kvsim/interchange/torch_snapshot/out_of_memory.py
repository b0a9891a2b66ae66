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
    """A failed allocation request of torch, in bytes.

    asked is the size of the request. device_free was free on the device. unused was reserved by
    torch and used by no tensor. largest_free is the largest unused piece; None: unknown.
    """

    device: int
    asked: int
    device_free: int
    unused: int
    largest_free: int | None = None

    @property
    def missing(self) -> int:
        """Bytes asked for beyond what the device had free."""
        return max(self.asked - self.device_free, 0)

    @property
    def fragmented(self) -> int:
        """The part of the missing bytes that was reserved by torch but unused."""
        return min(self.missing, self.unused)
