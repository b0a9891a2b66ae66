"""What a prefix cache with several groups of layers can give a sequence.

All groups must know the same prefix. Full attention needs all of it; a window needs the blocks
that hold the last W - 1 tokens, so those below may be forgotten; a recurrent state is all there is.

Blocks that hold states are long (hundreds of tokens and more), so that a prefix shorter than a
block would never be hit: where prefixes are matched in smaller units than these, hits may end
inside blocks. Full attention is then known to the last whole block, and inside the next one
wherever somebody's prompt ended; a state is known where a chunk ended. vLLM 0.33,
v1/core/kv_cache_coordinator.py and v1/core/single_type_kv_cache_manager.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.parts import NOTHING_FOUND, Found
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes

STATE_WINDOW = 2  # a state goes on from the one before it


class Hits(NamedTuple):
    """tokens: of the common prefix. first, blocks: for each group the position of the first block
    it keeps, and the blocks from there to the prefix's end, inside the last of which that may lie.

    junction: tokens of the longest prefix that some group knew, where that is more; else 0. Others
    have shared so much before: whoever computes it now keeps what the other groups need there.
    found: the blocks, where a pool keeps extents.
    """

    tokens: int
    first: tuple[int, ...]
    blocks: tuple[list[int], ...]
    junction: int = 0
    found: tuple[Found, ...] = ()


class Kind(NamedTuple):
    """Groups that look as far back, in blocks of as many tokens, and are looked up together.

    window_tokens: None for all. drops: they lose the last unit they know, since a drafter's layers
    must see it computed again.
    """

    members: tuple[int, ...]
    block_size: int
    window_tokens: int | None
    recurrent: bool
    drops: bool

    @property
    def full(self) -> bool:
        """Whether they need every token."""
        return self.window_tokens is None


def looks_back(groups: Sequence[BlockGroup], *, states_kept: bool) -> list[int | None]:
    """How many tokens back each group looks, None for all."""
    return [
        STATE_WINDOW if states_kept and group.state_bytes else group.window_tokens
        for group in groups
    ]


def kinds_of(groups: Sequence[BlockGroup], *, states_kept: bool, drops: bool) -> list[Kind]:
    """The groups that are cached, by kind. drops: hits of a drafter's layers lose their last unit:
    of the kinds that have such layers; of all but states, if none is known to.
    """
    windows = looks_back(groups, states_kept=states_kept)
    buckets: dict[int, list[int]] = {}
    for g, group in enumerate(groups):
        if states_kept or not group.state_bytes:
            buckets.setdefault(group.bucket, []).append(g)
    known = any(group.draft_layers for group in groups)
    found = []
    for members in buckets.values():
        first, recurrent = groups[members[0]], groups[members[0]].state_bytes > 0
        drafting = any(groups[g].draft_layers for g in members)
        dropping = drops and not recurrent and (drafting or not known)
        window = windows[members[0]]
        found.append(Kind(tuple(members), first.block_size, window, recurrent, dropping))
    return found


def skipped_blocks(window_tokens: int | None, computed: int, block_size: int) -> int:
    """Leading blocks that no token after the first `computed` ones attends to."""
    if window_tokens is None:
        return 0
    return max(0, computed - window_tokens + 1) // block_size


class Lookup:
    """Finds what all groups know. Of several groups, those whose hits lose their last unit may know
    one unit more than the prefix; beyond: even one that a resent prompt could not use itself.
    """

    def __init__(self, kinds: Sequence[Kind], sizes: Sizes, *, beyond: bool) -> None:
        self._num, self._sizes = len(sizes.blocks), sizes
        # Full attention first: it alone is looked up from the left.
        self._kinds = sorted(kinds, key=lambda kind: not kind.full)
        self._beyond = beyond
        self._simple = len(kinds) == 2 and self._kinds[0].full
        nothing = tuple(NOTHING_FOUND for _ in range(self._num))
        self._no_hits = Hits(0, (0,) * self._num, tuple([] for _ in nothing), 0, nothing)

    def find(self, table: GroupTable, num_keys: int, most: int) -> Hits:
        """The longest prefix of the units named by the first `num_keys` keys of `table`, at most
        the first `most` units, that every group can continue from.
        """
        num_keys = min(num_keys, len(table.runs))
        most = min(most, num_keys)
        if most <= 0:
            return self._no_hits
        tokens = known = most * self._sizes.match
        limit = num_keys if self._beyond else most
        longest, dropped = 0, set[int]()
        lengths: dict[int, int] = {}  # of full attention, which is looked up once
        while True:
            for index, kind in enumerate(self._kinds):
                if index in lengths:
                    known = min(known, lengths[index])
                    continue
                drops = kind.drops and index not in dropped
                found = self._length(index, kind, table, limit, known, drops=drops)
                if drops:
                    dropped.add(index)
                elif found < known:
                    dropped.clear()
                known = found
                if kind.full:
                    lengths[index] = found
                longest = max(longest, known)
            if known >= tokens:
                break
            tokens = known
            if self._simple:
                break
        return self._hits(table, tokens, longest if longest > tokens and self._num > 1 else 0)

    def _length(
        self, index: int, kind: Kind, table: GroupTable, limit: int, tokens: int, *, drops: bool
    ) -> int:
        """Tokens of the longest prefix, up to so many, that one kind can continue from. limit: of
        keys.
        """
        aligned, size = self._sizes.aligned, kind.block_size
        if drops and self._num > 1:
            tokens = min(tokens + min(aligned, size), limit * self._sizes.match)
        if kind.recurrent:
            return self._of_state(kind, table, tokens)
        if not kind.full:
            return self._of_window(kind, table, tokens, drops=drops)
        found = self._of_full(index, kind, table, limit, tokens)
        if drops and found:
            found -= min(aligned, size)
        return found - found % aligned

    def _of_full(self, index: int, kind: Kind, table: GroupTable, limit: int, tokens: int) -> int:
        """Whole blocks from the left and, where hits may end inside, some units of the next."""
        raise NotImplementedError

    def _of_window(self, kind: Kind, table: GroupTable, tokens: int, *, drops: bool) -> int:
        """The last run of as many blocks as a window needs, one more of which may be lost; else the
        run that the prefix begins with.
        """
        raise NotImplementedError

    def _of_state(self, kind: Kind, table: GroupTable, tokens: int) -> int:
        """The last place where a state is known."""
        raise NotImplementedError

    def _hits(self, table: GroupTable, tokens: int, junction: int) -> Hits:
        raise NotImplementedError
