"""Read a torch memory snapshot, trusting nothing in it, and say what its bytes are doing.

A pickle can name code to run. A snapshot is made of plain values, so whatever names anything else
is refused, and what is left is checked field by field.
"""

import io
import pickle
import pickletools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import input_error

_AWAITING = ("active_awaiting_free", "active_pending_free")  # named so in docs, and in snapshots
_BUFFERS = ("BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER")
_KEPT = ("PUT", "BINPUT", "LONG_BINPUT")
_REMEDY = "give a file that torch.cuda.memory._dump_snapshot() wrote"


class _Plain(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class SnapshotBlock(_Plain):
    """A range of a segment; sizes in bytes."""

    size: int = Field(ge=1)
    state: Literal["active_allocated", "active_awaiting_free", "active_pending_free", "inactive"]
    requested_size: int | None = Field(None, ge=0)


class SnapshotSegment(_Plain):
    """Memory the device has given, and the blocks it is cut into, in order of address."""

    address: int = Field(ge=0)
    total_size: int = Field(ge=1)
    device: int = 0
    segment_type: Literal["small", "large"] = "large"
    is_expandable: bool = False
    blocks: list[SnapshotBlock]


class SnapshotEntry(_Plain):
    """One action of the allocator; size in bytes asked for, or of the segment."""

    action: str
    size: int = 0
    addr: int | None = None
    time_us: int = 0


class Snapshot(_Plain):
    """What `torch.cuda.memory._snapshot()` returns, as far as it is read here."""

    segments: list[SnapshotSegment]
    device_traces: list[list[SnapshotEntry]] = []


class SnapshotLedger(NamedTuple):
    """What one device's reserved bytes are doing: the five classes after `segments` sum to
    `reserved`.

    requested: asked for by live tensors. rounding: given beyond that. awaiting_free: freed, but
    another stream may still use it. split: free in segments that hold something, so that only
    requests it fits can have it. whole: free segments, which can go back to the device.
    largest_free: the largest free block. peak_requested: most bytes asked for at a time, as far
    back as the trace goes.
    """

    device: int
    segments: int
    requested: int
    rounding: int
    awaiting_free: int
    split: int
    whole: int
    largest_free: int
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


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that can make plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"names {module}.{name}; a snapshot names nothing")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("refers to something outside the file")


def _check_opcodes(content: bytes) -> None:
    """Raise UnpicklingError for what the unpickler would believe before it can fail: an index of
    its memo makes it take as much memory as the index says, and a buffer as its length says.
    """
    for opcode, argument, place in pickletools.genops(content):
        if opcode.name in _BUFFERS:
            raise pickle.UnpicklingError(f"holds a buffer at byte {place}")
        if opcode.name in _KEPT and int(argument or 0) > len(content):
            raise pickle.UnpicklingError(f"keeps a value as number {argument:,} of so short a file")


def read_snapshot(path: str | Path) -> Snapshot:
    """The snapshot in a pickle file; InputError if it is not one, or more than one."""
    try:
        content = Path(path).read_bytes()
        _check_opcodes(content)
        data = _PlainUnpickler(io.BytesIO(content)).load()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except pickle.UnpicklingError as error:
        raise InputError(
            f"not a torch memory snapshot: {error}", where=str(path), remedy=_REMEDY
        ) from None
    except Exception as error:  # a broken pickle may fail in any way at all
        raise InputError(
            f"not a torch memory snapshot: {type(error).__name__}",
            where=str(path),
            remedy=_REMEDY,
        ) from None
    if isinstance(data, list):  # torch.cuda.memory_snapshot() returns the segments alone
        data = {"segments": data}
    try:
        snapshot = Snapshot.model_validate(data)
    except ValidationError as error:
        raise input_error(error, str(path), Snapshot) from None
    _check(snapshot, str(path))
    return snapshot


def _check(snapshot: Snapshot, where: str) -> None:
    """Segments lie apart, and their blocks tile them."""
    end: dict[int, int] = {}
    for segment in sorted(snapshot.segments, key=lambda s: (s.device, s.address)):
        place = f"{where}: segment at {segment.address:#x}"
        if segment.address < end.get(segment.device, 0):
            raise InputError("overlaps the one before it", where=place)
        end[segment.device] = segment.address + segment.total_size
        tiled = sum(block.size for block in segment.blocks)
        if tiled != segment.total_size:
            raise InputError(
                "its blocks do not fill it", where=place, value=tiled, limit=segment.total_size
            )
        for block in segment.blocks:
            if (block.requested_size or 0) > block.size:
                raise InputError(
                    "a block is smaller than what was asked for",
                    where=place,
                    value=block.size,
                    limit=block.requested_size,
                )


def ledgers(snapshot: Snapshot) -> list[SnapshotLedger]:
    """One ledger for each device that has segments, in order."""
    devices = sorted({segment.device for segment in snapshot.segments})
    return [_ledger(snapshot, device) for device in devices]


def _ledger(snapshot: Snapshot, device: int) -> SnapshotLedger:
    segments = [segment for segment in snapshot.segments if segment.device == device]
    requested = rounding = awaiting = split = whole = largest = 0
    for segment in segments:
        for block in segment.blocks:
            if block.state == "active_allocated":
                asked = block.size if block.requested_size is None else block.requested_size
                requested += asked
                rounding += block.size - asked
            elif block.state in _AWAITING:
                awaiting += block.size
            else:
                largest = max(largest, block.size)
                if len(segment.blocks) == 1:
                    whole += block.size
                else:
                    split += block.size
    traces = snapshot.device_traces
    trace = traces[device] if 0 <= device < len(traces) else []
    peak = _peak(trace, requested)
    return SnapshotLedger(
        device, len(segments), requested, rounding, awaiting, split, whole, largest, peak
    )


def _peak(trace: Sequence[SnapshotEntry], requested: int) -> int:
    """Most bytes asked for at a time, going back from `requested` at the trace's end."""
    peak = requested
    for entry in reversed(trace):
        if entry.action == "alloc":
            requested -= entry.size
        elif entry.action == "free_requested":
            requested += entry.size
        peak = max(peak, requested)
    return peak
