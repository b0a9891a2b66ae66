"""Read a torch memory snapshot safely, and classify its bytes.

A pickle can refer to code to run. A snapshot has only plain values, so a pickle that refers to
anything else is refused. The rest is checked field by field.
"""

import io
import pickle
import pickletools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvsim.interchange.torch_snapshot.ledger import SnapshotLedger
from kvsim.interchange.torch_snapshot.out_of_memory import OutOfMemory
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import input_error
from kvsim.plumbing.reading.files import read_bytes

_AWAITING = ("active_awaiting_free", "active_pending_free")  # named so in docs, and in snapshots
# What undoing an action adds to the bytes asked for, and to those that the device has given.
_OF_TENSORS = {"alloc": -1, "free_requested": 1}
_OF_SEGMENTS = {"segment_alloc": -1, "segment_map": -1, "segment_free": 1, "segment_unmap": 1}
_CHANGES = (*_OF_TENSORS, *_OF_SEGMENTS, "free_completed")
_BUFFERS = ("BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER")
_KEPT = ("PUT", "BINPUT", "LONG_BINPUT")
_REMEDY = (
    "give a file that torch.cuda.memory._dump_snapshot() wrote, torch.cuda.memory_stats() as JSON, "
    "or a log with torch's out-of-memory error"
)


class _Plain(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class SnapshotBlock(_Plain):
    """A range of a segment; sizes in bytes."""

    size: int = Field(ge=1)
    state: Literal["active_allocated", "active_awaiting_free", "active_pending_free", "inactive"]
    requested_size: int | None = Field(None, ge=0)


class SnapshotSegment(_Plain):
    """Memory from the device, and the blocks that it is divided into, in order of address."""

    address: int = Field(ge=0)
    total_size: int = Field(ge=1)
    device: int = 0
    segment_type: Literal["small", "large"] = "large"
    is_expandable: bool = False
    blocks: list[SnapshotBlock]


class SnapshotEntry(_Plain):
    """One action of the allocator. size is in bytes: as asked for, or of the segment. device_free
    is the device's free memory if a request failed.
    """

    action: str
    size: int = 0
    addr: int | None = None
    time_us: int = 0
    device_free: int | None = None


class Snapshot(_Plain):
    """The fields of `torch.cuda.memory._snapshot()` that kvsim reads."""

    segments: list[SnapshotSegment]
    device_traces: list[list[SnapshotEntry]] = []


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that creates plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"names {module}.{name}; a snapshot names nothing")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("refers to something outside the file")


def _check_opcodes(content: bytes) -> None:
    """Raise UnpicklingError for sizes that would make the unpickler allocate too much memory.

    A memo index allocates as much memory as the index says, and a buffer as much as its length
    says.
    """
    for opcode, argument, place in pickletools.genops(content):
        if opcode.name in _BUFFERS:
            raise pickle.UnpicklingError(f"holds a buffer at byte {place}")
        if opcode.name in _KEPT and int(argument or 0) > len(content):
            raise pickle.UnpicklingError(f"keeps a value as number {argument:,} of so short a file")


def read_snapshot(path: str | Path) -> Snapshot:
    """Read the snapshot in a pickle file; InputError if the file is none."""
    return parse_snapshot(read_bytes(Path(path)), path)


def parse_snapshot(content: bytes, path: str | Path) -> Snapshot:
    """Parse the bytes of a snapshot file; path is for error messages."""
    try:
        _check_opcodes(content)
        data = _PlainUnpickler(io.BytesIO(content)).load()
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
    """InputError if segments overlap, or their blocks do not fill them."""
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
    """One ledger per device that has segments, in order of device."""
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
    peak = _peak(_trace(snapshot, device), requested)
    return SnapshotLedger(
        device, len(segments), requested, rounding, awaiting, split, whole, largest, peak
    )


def _trace(snapshot: Snapshot, device: int) -> list[SnapshotEntry]:
    traces = snapshot.device_traces
    return traces[device] if 0 <= device < len(traces) else []


def last_failures(snapshot: Snapshot, found: Sequence[SnapshotLedger]) -> list[OutOfMemory]:
    """The last failed request of each device, with the memory's state at that time.

    Later trace entries are undone to get that state. torch returns its free segments before a
    request fails, so segments that are free now became free later.
    """
    failures = []
    for ledger in found:
        requested, reserved, changed = ledger.requested, ledger.reserved, False
        for entry in reversed(_trace(snapshot, ledger.device)):
            if entry.action == "oom" and entry.device_free is not None:
                unused = reserved - requested if changed else ledger.split
                largest = None if changed or ledger.whole else ledger.largest_free
                asked, free = entry.size, entry.device_free
                failures.append(OutOfMemory(ledger.device, asked, free, max(unused, 0), largest))
                break
            changed |= entry.action in _CHANGES
            requested += _OF_TENSORS.get(entry.action, 0) * entry.size
            reserved += _OF_SEGMENTS.get(entry.action, 0) * entry.size
    return failures


def _peak(trace: Sequence[SnapshotEntry], requested: int) -> int:
    """Largest total of bytes asked for at one time, going back from `requested` at the
    trace's end.
    """
    peak = requested
    for entry in reversed(trace):
        requested += _OF_TENSORS.get(entry.action, 0) * entry.size
        peak = max(peak, requested)
    return peak
