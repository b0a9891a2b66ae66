"""One table of counted blocks a sequence: what the prefix cache asks of it."""

from typing import ClassVar

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.counted.pool import NO_HITS, CountedPool, Hits
from kvsim.memory.paged.counted.table import CountedTable
from kvsim.memory.paged.table import Table


class CountedTables:
    """See `prefix_cache.Tables`."""

    names_private: ClassVar[bool] = False
    names_late: ClassVar[bool] = True

    def __init__(self, pool: CountedPool) -> None:
        self._pool = pool

    @property
    def version(self) -> int:
        return self._pool.version

    def fresh(self, runs: KeyRuns, num_shareable: int) -> CountedTable:
        """An empty table."""
        return CountedTable(runs, num_shareable)

    def find(self, table: Table, known: int, most: int) -> Hits:
        """What the first keys name, at most `most`, up to the first that names nothing."""
        most = min(known, most)
        return self._pool.find(table.runs, most) if most else NO_HITS

    def may_move(self, table: Table, num_hits: int) -> bool:
        """Whether other blocks of the same content may stand in for some that were hit."""
        return self._pool.has_duplicate_free(self._pool.find(table.runs, num_hits))

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        """The first `full` blocks of `table` hold the content of their keys from now on."""
        assert isinstance(table, CountedTable)
        for first, count in table.runs.between(table.registered, full):
            self._pool.register(table, first, count)
        table.registered = full
