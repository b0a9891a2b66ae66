"""How many blocks a sequence needs at once, all groups of layers together."""

from collections import Counter
from collections.abc import Sequence as Row

from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.grouping import BlockGroup


class Needs:
    """Windows count with the prompt tokens of the steps in flight, which is how vLLM sizes pools.

    most_states: recurrent states of a sequence at once, in each group that has them. scratch: of
    them those for drafts. extra: tokens kept below a window. inside: tokens at whose multiples hits
    may end inside a block, which is then taken over as a copy; None: they end with blocks.
    """

    def __init__(
        self,
        memory: MemorySpec,
        names: GroupNames,
        groups: Row[BlockGroup],
        most_states: int,
        scratch: int = 0,
        extra: int = 0,
        inside: int | None = None,
    ) -> None:
        self._max_model_len = memory.max_model_len
        self._most_tokens = memory.max_in_flight_tokens
        self._names, self._groups = names, groups
        self._most_states, self._scratch, self._extra = most_states, scratch, extra
        self._inside = inside
        # Groups that need as many blocks, and how many there are of each.
        kinds = Counter(group.bucket for group in groups)
        first = {group.bucket: group for group in groups}
        self._alike = [(first[kind], times) for kind, times in kinds.items()]

    def of_alone(self, tokens: int) -> int:
        """Blocks of a sequence that computes `tokens` tokens chunk by chunk, whatever it hits."""
        need = sum(self._most_blocks(group, tokens) for group in self._groups)
        if self._inside is None:
            return need
        return max(need, sum(self._most_copied(group, tokens) for group in self._groups))

    def _most_copied(self, group: BlockGroup, tokens: int) -> int:
        """The same where it goes on from a copy of its last hit block, which stays as well."""
        assert self._inside is not None
        most = self._most_blocks(group, tokens)
        if self._inside % group.block_size == 0:
            return most
        if group.state_bytes:
            states = self._most_states - self._scratch
            most = min(ceil_div(tokens, group.block_size), states) + self._scratch
        return most + 1

    def _most_blocks(self, group: BlockGroup, tokens: int) -> int:
        """Blocks that a group needs at once for a sequence of `tokens` tokens, at most."""
        if group.state_bytes:
            return self._most_states
        if group.window_tokens is None or self._most_tokens is None:
            return ceil_div(tokens, group.block_size)
        most = self._max_model_len - (group.window_tokens - 1)
        return group.blocks_at_once(tokens, min(self._extra + self._most_tokens, most))

    def of(self, hits: Hits, tokens: int, states: int, *, whole: bool, lookahead: int = 0) -> int:
        """Free blocks that a sequence with these hits takes for its first `tokens` tokens, `states`
        of them, beside those for drafts, for states beside those it hits.

        whole: asked for all it will compute, chunk by chunk, so windows give back meanwhile.
        lookahead: slots that drafts take behind the tokens; they take no states.
        """
        if not hits.tokens and not self._scratch:
            return self._of_fresh(tokens, states, whole=whole, lookahead=lookahead)
        need = 0
        for g, group in enumerate(self._groups):
            size, hit = group.block_size, ceil_div(hits.tokens, group.block_size)
            most = ceil_div(tokens + lookahead, size)
            if group.state_bytes:  # however many it computes
                most = min(ceil_div(tokens, size), hit + states) + self._scratch
            elif whole:
                most = self._most_blocks(group, tokens)
            need += max(most - hit, 0) + self._names.num_free_of(hits, g)
            need += hits.tokens % size > 0  # a copy of the last
        return need

    def _of_fresh(self, tokens: int, states: int, *, whole: bool, lookahead: int) -> int:
        """The same without hits."""
        need = 0
        for group, times in self._alike:
            if group.state_bytes:
                most = min(ceil_div(tokens, group.block_size), states)
            elif whole:
                most = self._most_blocks(group, tokens)
            else:
                most = ceil_div(tokens + lookahead, group.block_size)
            need += most * times
        return need
