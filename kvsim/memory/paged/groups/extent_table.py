"""What is kept of one sequence whose blocks lie in extents."""

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.parts import Part


class ExtentTable(GroupTable):
    """lists: empty unless blocks are tracked. parts: by group, its blocks with keys, in order.
    held_states: places of tables of states that hold one, the same in all groups of them.
    kept_until: of each kind of window, the place behind which retention leaves no block to be
    named.
    """

    __slots__ = ("_runs_in", "held_states", "kept_until", "parts")

    def __init__(self, runs: KeyRuns, num_shareable: int, num_groups: int, num_kinds: int) -> None:
        super().__init__(runs, num_shareable, num_groups, num_kinds)
        self.parts: list[list[Part]] = [[] for _ in range(num_groups)]
        self.held_states: list[int] = []
        self.kept_until: list[int] = []
        self._runs_in: dict[int, KeyRuns] = {}

    def runs_in(self, units: int) -> KeyRuns:
        """The keys of blocks of so many units."""
        if units == 1:
            return self.runs
        runs = self._runs_in.get(units)
        if runs is None:
            runs = self._runs_in[units] = self.runs.every(units)
        return runs

    def add_keys(self, first: int, count: int) -> None:
        super().add_keys(first, count)
        self._runs_in.clear()
