"""Tokens of a sequence, as runs of consecutive ids (see `kvsim.request`).

Equal ids share a prefix. An adapter has ids of its own, and so would a cache_salt, which kvsim does
not read.
"""

from collections.abc import Iterable, Iterator

from kvsim.request import PromptItem, TokenRuns
from kvsim.sequence import Sequence

ADAPTER_STRIDE = 1 << 64  # beyond every id that a workload or a recorded case hands out


def coalesced(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The runs with adjacent ones merged, so that equal token sequences have equal runs."""
    held: tuple[int, int] | None = None
    for start, length in runs:
        if not length:
            continue
        if held is None:
            held = (start, length)
        elif held[0] + held[1] == start:
            held = (held[0], held[1] + length)
        else:
            yield held
            held = (start, length)
    if held is not None:
        yield held


def under_adapter(runs: TokenRuns, adapter: int | None) -> TokenRuns:
    """The runs with each id replaced by one of this LoRA adapter, since its K and V differ."""
    return runs if adapter is None else tuple((adapter_id(at, adapter), n) for at, n in runs)


def adapter_id(token_id: int, adapter: int | None) -> int:
    """The id of one token under this LoRA adapter, different from its id under any other."""
    return token_id if adapter is None else token_id + (adapter + 1) * ADAPTER_STRIDE


def with_items(runs: TokenRuns, items: Iterable[PromptItem]) -> TokenRuns:
    """The runs of a prompt with each multimodal placeholder replaced by an id of its item's
    content.

    Equal items make equal blocks wherever their placeholders begin, as vLLM's hashes do.
    """
    pieces = list(runs)
    for item in items:
        pieces = [
            *_between(pieces, 0, item.start_tokens),
            (item.content, item.tokens),
            *_between(pieces, item.end_tokens, None),
        ]
    return tuple(pieces)


def _between(
    pieces: Iterable[tuple[int, int]], start: int, end: int | None
) -> Iterator[tuple[int, int]]:
    """The runs of token positions start to end - 1 (end None: to the last token)."""
    passed = 0
    for first, length in pieces:
        begin = max(start - passed, 0)
        stop = length if end is None else min(length, end - passed)
        if begin < stop:
            yield first + begin, stop - begin
        passed += length


def leading(runs: TokenRuns, count: int) -> TokenRuns:
    """The runs of the first `count` tokens; the last run is cut if needed."""
    return tuple(_between(runs, 0, count))


def beginning(seq: Sequence, count: int) -> TokenRuns | None:
    """The first `count` tokens that `seq` has now, in as few runs as possible; None if it has
    fewer, or if some of them are private to it.
    """
    if seq.prompt_runs is None or count > seq.num_tokens:
        return None
    runs = seq.prompt_runs
    if count > seq.prompt_tokens:
        if seq.output_start is None:
            return None
        runs = (*runs, (seq.output_start, seq.num_outputs))
    pieces: list[tuple[int, int]] = []
    for start, length in runs:
        pieces.append((start, min(length, count)))
        count -= pieces[-1][1]
        if not count:
            break
    return tuple(coalesced(pieces))
