"""How llama.cpp cuts a batch into micro-batches (src/llama-batch.cpp, 0c1e57098)."""

from collections.abc import Iterable, Sequence

from kvsim.memory.cells.field import TokenRun


def num_tokens(runs: Iterable[TokenRun]) -> int:
    """Number of tokens in these runs."""
    return sum(run.num for run in runs)


def slices(runs: Iterable[TokenRun], size: int) -> list[list[TokenRun]]:
    """Split a batch into micro-batches of `size` tokens, in batch order (llama.cpp's
    split_simple).
    """
    parts: list[list[TokenRun]] = []
    room = 0
    for seqs, pos, num in runs:
        taken = 0
        while taken < num:
            if not room:
                parts.append([])
                room = size
            some = min(room, num - taken)
            parts[-1].append(TokenRun(seqs, pos + taken, some))
            taken, room = taken + some, room - some
    return parts


def equal_parts(runs: Iterable[TokenRun], size: int, *, by_number: bool) -> list[list[TokenRun]]:
    """Split the runs into equal tokens per sequence (or set of sequences that share tokens).

    A micro-batch has at most `size` tokens, and at least one of each of its sequences.

    by_number: the ids of the sequences in a micro-batch rise by one, in batch order.
    """
    rest = list(runs)
    parts = []
    while rest:
        chosen = _chosen(rest, size, by_number=by_number)
        least = min(num_tokens(run for run in rest if run.seqs == seqs) for seqs in chosen)
        each = min(least, max(1, size // len(chosen)))
        part: list[TokenRun] = []
        for seqs in chosen:
            some, rest = _taken(rest, seqs, each)
            part += some
        parts.append(part)
    return parts


def _chosen(rest: Sequence[TokenRun], size: int, *, by_number: bool) -> list[tuple[int, ...]]:
    """The sequences, or sets of sequences, of the next micro-batch; no sequence is in two of the
    sets.
    """
    chosen: list[tuple[int, ...]] = []
    for seqs, _, _ in rest:
        if any(seq in other for other in chosen for seq in seqs):
            continue
        if by_number and chosen and seqs[0] != chosen[-1][0] + 1:
            continue
        chosen.append(seqs)
        if len(chosen) > size:
            break
    return chosen


def _taken(
    rest: Sequence[TokenRun], seqs: tuple[int, ...], num: int
) -> tuple[list[TokenRun], list[TokenRun]]:
    """(the first `num` tokens of `seqs`, the remaining batch), both as runs."""
    taken, left = [], []
    for run in rest:
        some = min(num, run.num) if run.seqs == seqs else 0
        num -= some
        if some:
            taken.append(TokenRun(seqs, run.pos, some))
        if some < run.num:
            left.append(TokenRun(run.seqs, run.pos + some, run.num - some))
    return taken, left
