"""What tokens a sequence is made of, as runs of consecutive ids (see `kvsim.request`)."""

from collections.abc import Iterable, Iterator

from kvsim.request import TokenRuns
from kvsim.sequence import Sequence


def coalesced(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same tokens in as few runs as possible, so that equal tokens look equal."""
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
