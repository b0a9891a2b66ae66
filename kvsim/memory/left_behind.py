"""Slots outside their windows in an allocator that stores every token in every layer.

A layer with a window of W tokens attends to the newest W. An allocator that keeps all slots of a
sequence in one buffer or block table holds the older ones too, which no step reads again. In the
ledger their bytes are over-provisioned, not used. A step that computes slots from n on still needs
the W - 1 slots before n, so slots older than that count as outside. Slots shared by several
sequences count as used.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvsim.layout import KVLayout
from kvsim.memory.ledger import OVERPROVISIONED, USED, Course, Jumps
from kvsim.memory.parts import LEFT_BEHIND


class WindowedDecoder(NamedTuple):
    """Slot counts of one sequence. computed: slots before its last step; slots: slots now; shared:
    leading slots that other sequences hold too.
    """

    computed: int
    slots: int
    shared: int = 0


class LeftBehind:
    """Windows of the layers of a model; falsy if no layer has a window.

    least_tokens: the longest sequence with no slot outside a window.
    """

    def __init__(self, layout: KVLayout) -> None:
        self._windows = [
            (group.window_tokens, group.bytes_per_token)
            for group in layout.groups
            if group.window_tokens is not None
        ]
        self.least_tokens = min((window for window, _ in self._windows), default=0)

    def __bool__(self) -> bool:
        return bool(self._windows)

    def bytes(self, computed: int, shared: int = 0) -> int:
        """Bytes outside the windows of a sequence with `computed` slots before its last step; other
        sequences hold the first `shared` slots too.
        """
        return sum(
            token_bytes * max(0, computed - window + 1 - shared)
            for window, token_bytes in self._windows
        )

    def during(self, course: Course, decoders: Iterable[WindowedDecoder], steps: int) -> Course:
        """Add the bytes that leave windows to `course`, the ledger change of `steps` decode steps
        of `decoders`.
        """
        jumps = Jumps()
        for computed, slots, shared in decoders:
            jumps.add(self.bytes(slots, shared) - self.bytes(computed, shared), 1)
            for window, token_bytes in self._windows:
                start = max(2, window + shared - slots + 1)  # one slot in each step from there on
                if start <= steps:
                    jumps.repeat(token_bytes, start, 1, steps - start + 1)
        return course._replace(
            moves=(*course.moves, *jumps.move(USED, OVERPROVISIONED)),
            parts=(*course.parts, *jumps.part(LEFT_BEHIND)),
        )
