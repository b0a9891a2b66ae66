"""Token ids, by which prompts share content. See `kvsim.request` for runs.

Recorded blocks: hash id h of blocks of B tokens is the ids h * B, h * B + 1, ..., so that
consecutive ids make one run.
"""

from typing import TYPE_CHECKING

from kvsim.request import PromptItem, TokenRuns

if TYPE_CHECKING:
    from kvsim.workload.traces.record import HashIds


class TokenIds:
    """Hands out ranges of token ids, none twice."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def take(self, count: int) -> int:
        """The first of `count` fresh ids."""
        start = self._next
        self._next += count
        return start


def length_of(runs: TokenRuns) -> int:
    """Tokens in all runs together."""
    return sum(length for _, length in runs)


def placed(contents: TokenRuns, start_tokens: int) -> tuple[PromptItem, ...]:
    """Consecutive items after start_tokens of a prompt."""
    items: list[PromptItem] = []
    for content, tokens in contents:
        items.append(PromptItem(start_tokens, tokens, content))
        start_tokens += tokens
    return tuple(items)


def kept(items: tuple[PromptItem, ...], prompt_tokens: int) -> tuple[PromptItem, ...]:
    """The items that lie whole in a prompt of this length: what is cut short is not encoded."""
    return tuple(item for item in items if item.end_tokens <= prompt_tokens)


def filled(head: TokenRuns, total: int, ids: TokenIds) -> TokenRuns:
    """`total` tokens that begin with `head` (cut short if need be) and go on with fresh ids."""
    runs: list[tuple[int, int]] = []
    for start, length in head:
        if not total:
            break
        runs.append((start, min(length, total)))
        total -= runs[-1][1]
    return (*runs, (ids.take(total), total)) if total else tuple(runs)


def runs_of_blocks(
    hash_ids: "HashIds", block_tokens: int, prompt_tokens: int, private: TokenIds
) -> TokenRuns:
    """The prompt's ids from its blocks' hash ids, in as few runs as possible.

    The last block may be cut short by the prompt's end; tokens past the last block get fresh ids.
    """
    runs: list[tuple[int, int]] = []
    index, count = 0, min(len(hash_ids), -(-prompt_tokens // block_tokens))
    while index < count:
        first = index
        while index + 1 < count and hash_ids[index + 1] == hash_ids[index] + 1:
            index += 1
        index += 1
        length = min(index * block_tokens, prompt_tokens) - first * block_tokens
        runs.append((hash_ids[first] * block_tokens, length))
    rest = prompt_tokens - min(count * block_tokens, prompt_tokens)
    if rest:
        runs.append((private.take(rest), rest))
    return tuple(runs)
