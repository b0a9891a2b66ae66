"""Token ids, by which prompts share content. See `kvsim.request` for runs of ids.

A recorded block with hash id h and B tokens becomes the token ids from h * B on. So consecutive
hash ids make one run.
"""

from typing import TYPE_CHECKING

from kvsim.request import PromptItem, TokenRuns

if TYPE_CHECKING:
    from kvsim.workload.traces.record import HashIds


class TokenIds:
    """Allocates ranges of token ids, each only once."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def take(self, count: int) -> int:
        """Reserve `count` unused ids; returns the first."""
        start = self._next
        self._next += count
        return start


def length_of(runs: TokenRuns) -> int:
    """Total number of tokens in these runs."""
    return sum(length for _, length in runs)


def placed(contents: TokenRuns, start_tokens: int) -> tuple[PromptItem, ...]:
    """Items (images, sounds, videos) placed one after the other, starting after start_tokens tokens
    of a prompt.
    """
    items: list[PromptItem] = []
    for content, tokens in contents:
        items.append(PromptItem(start_tokens, tokens, content))
        start_tokens += tokens
    return tuple(items)


def kept(items: tuple[PromptItem, ...], prompt_tokens: int) -> tuple[PromptItem, ...]:
    """The items that are completely inside a prompt of this length; a partial item is not
    encoded.
    """
    return tuple(item for item in items if item.end_tokens <= prompt_tokens)


def filled(head: TokenRuns, total: int, ids: TokenIds) -> TokenRuns:
    """Runs of `total` tokens that begin with `head` (cut if longer) and continue with fresh ids."""
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
    """A prompt's token ids, derived from the hash ids of its blocks, in as few runs as possible.

    The last block may be partial; tokens past the last block get fresh ids.
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
