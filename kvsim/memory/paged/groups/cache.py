"""The prefix cache of several block tables: what is known of each depends on its blocks' size."""

from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.host_tier import HostTier
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.table import Table
from kvsim.speculation import Speculation
from kvsim.vllm.sizes import Sizes


class GroupsCache(PrefixCache[Hits]):
    """step: tokens after which something may become known in all groups. Otherwise as its base."""

    def __init__(
        self,
        names: GroupNames,
        step: int,
        sizes: Sizes,
        *,
        enabled: bool,
        lag: int,
        speculation: Speculation | None,
        holds_back: bool,
        names_returned: bool,
        host: HostTier | None = None,
    ) -> None:
        super().__init__(
            names,
            step,
            enabled=enabled,
            lag=lag,
            unit_tokens=sizes.match,
            host=host,
            speculation=speculation,
            holds_back=holds_back,
            names_returned=names_returned,
        )
        self._names, self._same = names, sizes.same

    def cover(self, table: Table, tokens: int, known_tokens: int, *, in_step: bool = True) -> None:
        """As promised. Where blocks differ, what is computed and what has keys count apart: the
        one up to the last place where a hit can end, the other block by block.
        """
        if self._same or not self.enabled:
            super().cover(table, tokens, known_tokens, in_step=in_step)
            return
        if not (in_step or self._names_returned):
            return
        assert isinstance(table, GroupTable)
        computed = tokens - self.redrafted
        hashed = (known_tokens - self.lookahead) // self._unit
        hashed_tokens = min(hashed, len(table.runs)) * self._unit
        self._names.name(table, computed, hashed_tokens, in_step=in_step)
        known = min(computed, known_tokens - self.lookahead) // self._size
        table.covered = max(known, table.covered)
        table.registered = min(table.covered, len(table.runs) // self.units)
        table.cover_at = (known + 1) * self._size
