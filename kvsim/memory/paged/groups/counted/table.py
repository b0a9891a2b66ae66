"""What is kept of one sequence whose blocks are counted."""

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.groups.table import GroupTable


class CountedTable(GroupTable):
    """named: by group, the blocks with names by their place in its table; empty while there are
    none. held_states: places of tables of states that hold one, the same in all groups of them.
    kept_until: by group, the place behind which retention leaves nothing of a window to be named.
    """

    __slots__ = ("blocks", "held_states", "kept_until")

    def __init__(self, runs: KeyRuns, num_shareable: int, num_groups: int, num_kinds: int) -> None:
        super().__init__(runs, num_shareable, 0, num_kinds)
        self.skipped = [0] * num_groups
        self.blocks: list[dict[int, int]] = []
        self.held_states: list[int] = []
        self.kept_until: list[int] = []

    def named_in(self, g: int) -> dict[int, int]:
        """The blocks with names of group g, by place, in order; to be added to."""
        if not self.blocks:
            self.blocks = [{} for _ in self.skipped]
        return self.blocks[g]
