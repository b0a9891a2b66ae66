"""The holds of each sequence on a tree with a second pool."""

from kvsim.memory.radix.holds import Holds, Slots
from kvsim.memory.radix.node import Content
from kvsim.memory.radix_hybrid.node import HybridNode
from kvsim.memory.radix_hybrid.tree import HybridTree, hybrid
from kvsim.sequence import Sequence


class HybridSlots(Slots):
    """mark, holds_part: where the lock on the second pool ends, and whether it is still there.
    agreed: tokens that the tree agreed with when the sequence was matched. chunks: of its prompt,
    computed so far. joined: slots it had when it began to decode, -1 before.

    cursor: before it the sequence gave its windows back. branch: a place, in tokens, where paths
    part and the second pool lacks something; 0 for none.
    states: slots of the state pool that it holds itself. tracked: tokens after which a state of it
    is kept aside; None: none is. untracked: lengths at which it would have been, and was not.
    """

    __slots__ = (
        *("agreed", "branch", "chunks", "cursor", "holds_part", "joined", "mark", "states"),
        *("tracked", "untracked"),
    )

    def __init__(self, content: Content) -> None:
        super().__init__(content)
        self.reset()

    def reset(self) -> None:
        """Clear all holds."""
        self.mark = 0
        self.holds_part = False
        self.agreed = 0
        self.chunks = 0
        self.joined = -1
        self.cursor = 0
        self.branch = 0
        self.states = 0
        self.tracked: int | None = None
        self.untracked: list[int] = []

    @property
    def own_from(self) -> int:
        """The first token with window slots of its own."""
        return max(self.protected, self.cursor)


def slots_of(seq: Sequence) -> HybridSlots:
    """The slots of a matched sequence."""
    slots = seq.memory
    assert isinstance(slots, HybridSlots)
    return slots


class HybridHolds(Holds):
    """grid: places where paths part count in whole multiples of it."""

    def __init__(self, tree: HybridTree, grid: int, *, caching: bool) -> None:
        super().__init__(tree, caching=caching)
        self._hybrid = tree
        self._grid = grid

    def _new_slots(self, content: Content) -> Slots:
        return HybridSlots(content)

    def pin(self, seq: Sequence) -> int:
        slots = self.slots(seq)
        assert isinstance(slots, HybridSlots)
        self.pinned[seq] = slots
        slots.reset()
        if self._caching:
            found = self._hybrid.look_up(slots.content, seq.num_tokens - 1)
            slots.agreed = found.agreed
            branch = found.agreed - found.agreed % self._grid
            slots.branch = branch if branch > found.tokens else 0
            slots.node, slots.protected = found.node, found.tokens
            self._hold(slots, found.node)
            self.protected += slots.protected
        return slots.protected

    def _hold(self, slots: HybridSlots, node: HybridNode) -> None:
        slots.mark, slots.holds_part = self._hybrid.hold(node), True

    def let_go_of_part(self, slots: HybridSlots) -> None:
        """A sequence keeps its lock on KV, and holds nothing of the second pool's any more."""
        if slots.holds_part and slots.node is not None:
            self._hybrid.part.unlock(hybrid(slots.node), slots.mark)
        slots.holds_part = False

    def let_go(self, slots: Slots) -> None:
        assert isinstance(slots, HybridSlots)
        self.let_go_of_part(slots)
        super().let_go(slots)

    def move(self, slots: HybridSlots, node: HybridNode, whole: int) -> None:
        """A sequence that filed its first `whole` tokens locks `node`, in which they end."""
        before = slots.protected
        self.let_go_of_part(slots)
        assert slots.node is not None
        self._tree.unlock(slots.node)
        self._hold(slots, node)
        slots.node, slots.protected = node, whole
        self.protected += whole - before
