"""Decoding sequences free the blocks that have left their sliding windows."""

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.forecast import Windows
from kvsim.memory.paged.windows import Reach
from kvsim.request import Request
from kvsim.sequence import Sequence


def test_sequence_that_rejoins_frees_blocks_of_both_windows_in_step() -> None:
    """The longer window as it first joined, the shorter one as it joined two steps later."""
    windows = Windows([Reach(2), Reach(4)], [4, 4], 0)
    seq = Sequence(Request("r", 0, 1, 8), 0)
    seq.decoding, seq.memory = True, Table(KeyRuns([], []), 0, 2, 1)
    for clock, base in ((0, 1), (2, -1)):
        windows.leave(seq, seq.memory.base)
        seq.memory.base = base
        windows.join(seq, base, clock, [0, 0])
    # A block of four tokens ends below the windows once five and seven are computed.
    assert [clock for clock in range(3, 9) if windows.givers(clock)] == [6, 8]
