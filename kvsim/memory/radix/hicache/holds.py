"""Which part of a tree over two memories each sequence locks, and what it files there."""

from kvsim.memory.radix.hicache.backup import Backup
from kvsim.memory.radix.hicache.node import TierNode, tier_node
from kvsim.memory.radix.hicache.tree import HicacheTree
from kvsim.memory.radix.holds import Holds, Slots
from kvsim.memory.radix.node import Content, Node
from kvsim.sequence import Sequence


class HicacheSlots(Slots):
    """The slots of one sequence on the device, and its content in host memory.

    filed: of its first tokens, those that it has inserted since it was admitted. anchor: where its
    content ends in either memory, as it was last looked up; host_hit: tokens there that are not on
    the device. promised, loaded: of its admission, what was on the host, and what was loaded.
    """

    __slots__ = ("anchor", "filed", "host_hit", "loaded", "promised")

    def __init__(self, content: Content) -> None:
        super().__init__(content)
        self.filed = 0
        self.anchor: TierNode | None = None
        self.host_hit = self.promised = self.loaded = 0


class HicacheHolds(Holds):
    """backup: notified of insertions."""

    def __init__(self, tree: HicacheTree, backup: Backup) -> None:
        super().__init__(tree, caching=True)
        self._tiers = tree
        self._backup = backup

    def _new_slots(self, content: Content) -> Slots:
        return HicacheSlots(content)

    def hicache_slots(self, seq: Sequence) -> HicacheSlots:
        """The record of `seq`."""
        slots = self.slots(seq)
        assert isinstance(slots, HicacheSlots)
        return slots

    def _find(self, slots: Slots, limit: int) -> tuple[Node, int]:
        end, tokens = super()._find(slots, limit)
        node, on_device = self._tiers.on_device(end, tokens)
        assert isinstance(slots, HicacheSlots)
        slots.anchor, slots.host_hit = tier_node(end), tokens - on_device
        slots.promised, slots.loaded = slots.host_hit, 0
        return node, on_device

    def _inserted(self, slots: Slots, node: Node, tokens: int) -> None:
        assert isinstance(slots, HicacheSlots)
        self._backup.inserted(tier_node(node), tokens, slots.filed)
        slots.filed = max(slots.filed, tokens)
