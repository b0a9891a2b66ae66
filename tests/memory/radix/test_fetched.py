"""What a storage has brought hangs below its anchor as `insert_host` of SGLang 0.5.23 hangs it: its
tree, filled by hand, gave what these tests expect.
"""

import pytest

from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.content import Content
from kvsim.memory.radix.hicache.fetched import hang


@pytest.mark.parametrize(
    ("writes_back", "new", "taken"),
    [
        pytest.param(False, 16, 16, id="what lies on the device alone takes what was brought"),
        pytest.param(True, 8, 8, id="what the device writes back gives it back"),
    ],
)
def test_fetched_pages_merge_with_device_only_nodes(
    writes_back: bool, new: int, taken: int
) -> None:
    threshold = None if writes_back else 2
    pool = RadixAllocator(400, 1, 4, host_tokens=40, write_threshold=threshold)
    tree, content = pool.tree, Content(((0, 30),))
    pool.pool.free -= 8
    tree.insert(content, 8)
    tree.host.free -= 16
    assert hang(tree, tree.root, content, 0, 16) == new
    (above,) = tree.root.children.values()
    (below,) = above.children.values()
    above, below = above, below
    assert (above.tokens, above.on_device, above.on_host) == (8, True, not writes_back)
    assert (below.tokens, below.on_device, below.on_host) == (8, False, True)
    assert tree.host.tokens - tree.host.free == taken
    tree.check()
