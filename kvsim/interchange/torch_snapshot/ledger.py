"""Classes of the bytes that torch has reserved on a device."""

from typing import NamedTuple


class SnapshotLedger(NamedTuple):
    """Classes of one device's reserved bytes; the five fields after `segments` sum to `reserved`.

    requested was asked for by live tensors. rounding was allocated beyond that. awaiting_free is
    freed, but another stream may still use it. split is free in segments that are partly in use, so
    only requests that fit there can have it. whole is in entirely free segments, which torch can
    return to the device. largest_free is the largest free block; None: unknown. peak_requested is
    the largest total asked for at one time, within the trace.
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
        """Bytes of all segments from the device: torch.cuda.memory_reserved()."""
        return self.allocated + self.awaiting_free + self.external

    @property
    def external(self) -> int:
        """Reserved bytes that are free: in partly used segments, or in entirely free ones."""
        return self.split + self.whole
