"""The use of the bytes that torch has reserved on a device."""

from typing import NamedTuple


class SnapshotLedger(NamedTuple):
    """The use of one device's reserved bytes: the five classes after `segments` sum to `reserved`.

    requested: asked for by live tensors. rounding: given beyond that. awaiting_free: freed, but
    another stream may still use it. split: free in segments that hold something, so that only
    requests it fits can have it. whole: free segments, which can go back to the device.
    largest_free: the largest free block; None: unknown. peak_requested: most bytes asked for at a
    time, as far back as the trace goes.
    """

    device: int
    segments: int
    requested: int
    rounding: int
    awaiting_free: int
    split: int
    whole: int
    largest_free: int | None
    peak_requested: int

    @property
    def allocated(self) -> int:
        """Bytes of blocks in use: torch.cuda.memory_allocated()."""
        return self.requested + self.rounding

    @property
    def reserved(self) -> int:
        """Bytes the device has given: torch.cuda.memory_reserved()."""
        return self.allocated + self.awaiting_free + self.external

    @property
    def external(self) -> int:
        """Bytes given by the device and free."""
        return self.split + self.whole
