"""Known content by runs of keys, where a block repeats a key within a longer run."""

from kvsim.memory.paged.block_index import KnownContent
from kvsim.memory.paged.blocks import Extent


def test_duplicate_of_a_cached_block_counts_as_younger_until_it_is_evicted() -> None:
    known = KnownContent(0)
    (older,) = known.add(100, 3)
    repeated = Extent(101, 1, 0)
    known.hold(repeated)
    assert repeated.is_younger
    assert known.check() == 4
    known.forget(older, 3)
    assert not repeated.is_younger
    assert known.check() == 1
