"""When decoding sequences give blocks back that slid out of a window.

A decoder with n slots, as many of them computed but for those still in flight, gives a block in
the step that starts where (computed - W + 1) is a multiple of the block size, from the first block
that lies below the window on. All decoders advance together, so these steps return with a rhythm:
the decoders lie in buckets like those of paged.py. What does not follow the rhythm is kept by its
clock: a sequence enters the rhythm when its window first leaves the start, and one that has just
computed a prompt gives back at once all that its last token no longer sees.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from kvsim.memory.paged.groups.hits import skipped_blocks
from kvsim.sequence import Sequence

Bucket = dict[Sequence, None]
NEVER = 1 << 62


class Windows:
    """Which decoders give at which clock; `base` is slots minus clock, as in paged.py."""

    def __init__(self, windows: Iterable[int | None], block_size: int, lag: int) -> None:
        self._size = block_size
        self._lag = lag
        self._groups: dict[int, list[int]] = {}  # window: which groups have it
        for g, window in enumerate(windows):
            if window is not None:
                self._groups.setdefault(window, []).append(g)
        self._rhythm: dict[int, list[Bucket]] = {
            window: [{} for _ in range(block_size)] for window in self._groups
        }
        self._ripening: list[tuple[int, int, int, int, Sequence]] = []
        self._once: dict[int, Bucket] = {}

    def join(self, seq: Sequence, base: int, clock: int, skipped: list[int]) -> None:
        """`seq` decodes from the step that starts at `clock` on; skipped: blocks it has given, by
        group.
        """
        for window in self._groups:
            ripe = window + self._lag - base
            if ripe <= clock:
                self._bucket(window, base)[seq] = None
            else:
                heappush(self._ripening, (ripe, seq.order, window, base, seq))
        if any(
            skipped_blocks(window, base + clock, self._size) > skipped[members[0]]
            for window, members in self._groups.items()
        ):
            for late in range(self._lag + 1):
                self._once.setdefault(clock + late, {})[seq] = None

    def leave(self, seq: Sequence, base: int) -> None:
        """`seq` decodes no more."""
        for window in self._groups:
            self._bucket(window, base).pop(seq, None)
        for bucket in self._once.values():
            bucket.pop(seq, None)

    def _bucket(self, window: int, base: int) -> Bucket:
        return self._rhythm[window][(base - self._lag - window + 1) % self._size]

    def givers(self, clock: int) -> Bucket:
        """Who may give in the step that starts at `clock`."""
        self._ripen(clock)
        found: Bucket = dict(self._once.get(clock, ()))
        for buckets in self._rhythm.values():
            found.update(buckets[-clock % self._size])
        return found

    def passed(self, clock: int) -> None:
        """The step that starts at `clock` is over."""
        self._once.pop(clock, None)

    def num_given(self, clock: int) -> int:
        """Blocks given by rhythm in the step that starts at `clock`, if none is shared."""
        return sum(
            len(buckets[-clock % self._size]) * len(self._groups[window])
            for window, buckets in self._rhythm.items()
        )

    def irregular(self, clock: int) -> bool:
        """Whether somebody gives out of rhythm in the step that starts at `clock`."""
        return bool(self._once.get(clock))

    def steady_steps(self, clock: int) -> int:
        """Steps from `clock` on, the first whatever it is, that follow the rhythm of now."""
        self._ripen(clock)
        ripening = self._ripening
        while ripening and not _stands(ripening[0]):
            heappop(ripening)
        ahead = [later for later, bucket in self._once.items() if later > clock and bucket]
        next_clock = min(ahead, default=NEVER)
        if ripening:
            next_clock = min(next_clock, ripening[0][0])
        return next_clock - clock

    def _ripen(self, clock: int) -> None:
        """Whose window has left the start by `clock` joins the rhythm."""
        while self._ripening and self._ripening[0][0] <= clock:
            entry = heappop(self._ripening)
            if _stands(entry):
                _, _, window, base, seq = entry
                self._bucket(window, base)[seq] = None


def _stands(entry: tuple[int, int, int, int, Sequence]) -> bool:
    """Whether an entry still speaks of a decoder (it may have left and joined again)."""
    _, order, _, base, seq = entry
    return seq.decoding and seq.order == order and seq.memory.base == base
