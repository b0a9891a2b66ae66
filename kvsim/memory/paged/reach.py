"""How far back the tokens of a group of layers attend, and so which blocks may be given back.

vLLM 0.33, v1/core/single_type_kv_cache_manager.py: `get_num_skipped_tokens` of each manager, and in
v1/kv_cache_interface.py `max_admission_blocks_per_request`.
"""

from collections.abc import Sequence

from kvsim.vllm.grouping import BlockGroup

STATE_WINDOW = 2  # a state continues from the one before it


class Reach:
    """A limited reach: a window of the last `tokens` tokens, the next one included, or `chunked`
    the chunk of the next token. Chunks begin at multiples of `tokens`.

    kept_tokens: computed tokens that the next token may need.
    """

    __slots__ = ("chunked", "kept_tokens", "tokens")

    def __init__(self, tokens: int, *, chunked: bool = False) -> None:
        self.tokens, self.chunked = tokens, chunked
        self.kept_tokens = tokens if chunked else tokens - 1

    def skipped_tokens(self, computed: int) -> int:
        """Leading tokens that no token after the first `computed` ones attends to; none if
        negative.
        """
        if self.chunked:
            return computed - computed % self.tokens
        return computed - self.kept_tokens

    def gives(self, skipped: int, computed: int, size: int) -> list[tuple[int, int]]:
        """(tokens, blocks): a table that has freed its first `skipped` blocks of `size` tokens
        frees so many more after so many computed tokens, for each number up to `computed`.
        """
        if not self.chunked:
            first = (skipped + 1) * size + self.kept_tokens
            return [(tokens, 1) for tokens in range(first, computed + 1, size)]
        each = self.tokens
        ends = range(skipped * size // each * each + each, computed + 1, each)
        return [(end, end // size - (end - each) // size) for end in ends]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reach) and (self.tokens, self.chunked) == (
            other.tokens,
            other.chunked,
        )

    def __hash__(self) -> int:
        return hash((self.tokens, self.chunked))


def reaches_of(groups: Sequence[BlockGroup], *, states_kept: bool) -> list[Reach | None]:
    """The reach of each group; None: it attends to all tokens, or keeps one state a sequence."""
    return [_reach_of(group, states_kept=states_kept) for group in groups]


def _reach_of(group: BlockGroup, *, states_kept: bool) -> Reach | None:
    if group.state_bytes and states_kept:
        return Reach(STATE_WINDOW)
    if group.chunk_tokens is not None:
        return Reach(group.chunk_tokens, chunked=True)
    return None if group.window_tokens is None else Reach(group.window_tokens)


def skipped_blocks(reach: Reach | None, computed: int, block_size: int) -> int:
    """Leading blocks that no token after the first `computed` ones attends to."""
    if reach is None:
        return 0
    return max(0, reach.skipped_tokens(computed)) // block_size
