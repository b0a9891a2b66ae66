"""Record a simulated arena as `torch.cuda.memory._snapshot()`, for torch's memory_viz.

The format (torch/cuda/memory.py) has segments of blocks at one time, and a trace of the events
before it. A torch arena's segments are shown as they are, and of expandable ones each mapped range.
Any other arena is shown as one segment, the pool.
"""

import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.memory.arena.placement import Arena
from kvsim.memory.arena.torch_arena import TorchArena
from kvsim.memory.arena.torch_blocks import Block, State
from kvsim.plumbing.writing import replace_file

BASE_ADDRESS = 0x7F00_0000_0000  # a device's addresses do not begin at 0, and viewers expect that
PROTOCOL = 4  # the newest pickle protocol that memory_viz reads


class Event(NamedTuple):
    """One entry of a trace. version is the arena's version counter, size the bytes asked for."""

    version: int
    action: str
    address: int
    size: int
    owner: str
    time_us: int


class SnapshotRecorder:
    """Listens to an arena, and writes its state with the events before it on request.

    time_us is the time of the next events, set by the owner of the clock. max_entries limits the
    trace to the newest events.
    """

    def __init__(self, arena: Arena, max_entries: int = 100_000) -> None:
        self.arena = arena
        self.time_us = 0
        self.events: deque[Event] = deque(maxlen=max_entries)
        self._asked: dict[int, tuple[int, str]] = {
            address: (size, "") for address, size in arena.live()
        }
        arena.listener = self
        if not isinstance(arena, TorchArena):
            self.device("segment_alloc", 0, arena.capacity_bytes)

    # --- events of the arena --------------------------------------------------------------------

    def allocated(self, address: int, size: int, owner: str) -> None:
        """Record that a region for `size` bytes was allocated at `address`."""
        self._asked[address] = (size, owner)
        self._note("alloc", address, size, owner)

    def freed(self, address: int) -> None:
        """Record that the region at `address` was freed."""
        size, owner = self._asked.pop(address)
        self._note("free_requested", address, size, owner)
        self._note("free_completed", address, size, owner)

    def extended(self, address: int, size: int) -> None:
        """Record that a region grew. Torch's traces have no such event: the region is freed and
        allocated again.
        """
        owner = self._asked[address][1]
        self.freed(address)
        self.allocated(address, size, owner)

    def device(self, action: str, address: int, size: int) -> None:
        """Record that a segment, or pages of one, came from the device or were returned to it."""
        self._note(action, address, size, "")

    def restored(self, version: int) -> None:
        """Remove events after `version`: the arena was rolled back to it."""
        while self.events and self.events[-1].version > version:
            event = self.events.pop()
            if event.action == "alloc":
                del self._asked[event.address]
            elif event.action == "free_completed":
                self._asked[event.address] = (event.size, event.owner)

    def _note(self, action: str, address: int, size: int, owner: str) -> None:
        self.events.append(Event(self.arena.version, action, address, size, owner, self.time_us))

    # --- what it can show -----------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The arena's current state and its trace, in torch's format."""
        return {
            "segments": [self._segment(small, run) for small, run in _runs(self.arena)],
            "device_traces": [[_entry(event) for event in self.events]],
            "allocator_settings": {
                "expandable_segments": isinstance(self.arena, TorchArena) and self.arena.expandable
            },
            "external_annotations": [],
        }

    def write(self, path: str | Path) -> None:
        """Write the snapshot as a pickle file, completely or not at all."""
        data = pickle.dumps(self.snapshot(), protocol=PROTOCOL)
        replace_file(Path(path), lambda temporary: temporary.write_bytes(data))

    def _segment(self, small: bool, run: list[Block]) -> dict[str, Any]:
        blocks = [self._block(block) for block in run]
        active = [block for block in blocks if block["state"] == "active_allocated"]
        allocated = sum(block["size"] for block in active)
        return {
            "device": 0,
            "address": BASE_ADDRESS + run[0].address,
            "total_size": sum(block.size for block in run),
            "stream": 0,
            "segment_type": "small" if small else "large",
            "segment_pool_id": (0, 0),
            "allocated_size": allocated,
            "active_size": allocated,
            "requested_size": sum(block["requested_size"] for block in active),
            "is_expandable": isinstance(self.arena, TorchArena) and self.arena.expandable,
            "frames": [],
            "blocks": blocks,
        }

    def _block(self, block: Block) -> dict[str, Any]:
        allocated = block.state is State.ALLOCATED
        size, owner = self._asked[block.address] if allocated else (0, "")
        return {
            "address": BASE_ADDRESS + block.address,
            "size": block.size,
            "requested_size": size,
            "state": "active_allocated" if allocated else "inactive",
            "frames": _frames(owner),
        }


def _entry(event: Event) -> dict[str, Any]:
    return {
        "action": event.action,
        "addr": BASE_ADDRESS + event.address,
        "size": event.size,
        "stream": 0,
        "time_us": event.time_us,
        "frames": _frames(event.owner),
    }


def _frames(owner: str) -> list[dict[str, Any]]:
    """A stack frame with the memory's owner, which torch's viewer shows as the requester."""
    return [{"filename": "kvsim", "line": 0, "name": owner}] if owner else []


def _runs(arena: Arena) -> Iterator[tuple[bool, list[Block]]]:
    """(small, blocks) of each range of memory from the device, in order of address."""
    if not isinstance(arena, TorchArena):
        yield False, list(_pool(arena))
        return
    run: list[Block] = []
    small = {segment.address: segment.small for segment in arena.segments()}
    for block in arena.blocks():
        if run and (block.segment != run[-1].segment or block.state is State.UNMAPPED):
            yield small[run[0].segment], run
            run = []
        if block.state is not State.UNMAPPED:
            run.append(block)
    if run:
        yield small[run[0].segment], run


def _pool(arena: Arena) -> Iterable[Block]:
    """A pool as blocks of one segment; its unusable end (metadata_bytes) is shown as free."""
    blocks = [Block(address, size, 0, State.ALLOCATED) for address, size in arena.live()]
    blocks += [Block(address, size, 0, State.FREE) for address, size in arena.holes()]
    if arena.metadata_bytes:
        end = arena.capacity_bytes - arena.metadata_bytes
        blocks.append(Block(end, arena.metadata_bytes, 0, State.FREE))
    return sorted(blocks)
