"""Convert the hash ids of prompts to blocks of another size."""

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div
from kvsim.workload.traces.record import LARGEST_ID, HashIds, TraceRow


def rehash(
    rows: list[TraceRow], block_tokens: int, wanted: int, *, complete_only: bool = False
) -> list[TraceRow]:
    """Convert the rows' hash ids to ids of blocks of `wanted` tokens.

    Smaller blocks divide the old ids. Larger ones get an id for each distinct chain of old blocks,
    so sharing that ends inside a larger block is lost. Sizes that do not divide are an InputError.
    The last, partial block gets an id too, unless complete_only.
    """
    if block_tokens % wanted and wanted % block_tokens:
        raise InputError(
            "hash blocks cannot be cut so",
            value=f"{block_tokens} tokens",
            limit=f"a divisor or a multiple of {wanted}",
        )
    rows = _numbered(rows, max(1, block_tokens // wanted))
    chains: dict[tuple[int, ...], int] = {}
    fresh = _Fresh(rows, block_tokens, wanted)
    done = []
    for row in rows:
        if row.hash_ids is None:
            done.append(row)
            continue
        ids = row.hash_ids[: ceil_div(row.prompt_tokens, block_tokens)]
        if wanted < block_tokens:
            factor = block_tokens // wanted
            ids = tuple(block * factor + part for block in ids for part in range(factor))
        elif wanted > block_tokens:
            ids = _merged(ids, wanted // block_tokens, chains)
        blocks = (
            (row.prompt_tokens // wanted) if complete_only else ceil_div(row.prompt_tokens, wanted)
        )
        ids = ids[:blocks]
        done.append(row._replace(hash_ids=(*ids, *fresh.take(blocks - len(ids)))))
    return done


def _numbered(rows: list[TraceRow], factor: int) -> list[TraceRow]:
    """The rows with hash ids renumbered from 0, if `factor` times their ids would be too large."""
    most = max((max(row.hash_ids) for row in rows if row.hash_ids), default=-1)
    if most < LARGEST_ID // (2 * factor):
        return rows
    numbers: dict[int, int] = {}

    def numbered(ids: HashIds) -> HashIds:
        return tuple(numbers.setdefault(block, len(numbers)) for block in ids)

    return [
        row if row.hash_ids is None else row._replace(hash_ids=numbered(row.hash_ids))
        for row in rows
    ]


def _merged(ids: HashIds, factor: int, chains: dict[tuple[int, ...], int]) -> HashIds:
    """An id for each group of `factor` blocks; equal groups after equal prefixes get equal ids."""
    merged: list[int] = []
    for first in range(0, len(ids), factor):
        chain = (merged[-1] if merged else -1, *ids[first : first + factor])
        merged.append(chains.setdefault(chain, len(chains)))
    return tuple(merged)


class _Fresh:
    """Supplies unused block ids, for ends of prompts in formats that hash only complete blocks."""

    def __init__(self, rows: list[TraceRow], block_tokens: int, wanted: int) -> None:
        if wanted > block_tokens:
            highest = sum(len(row.hash_ids or ()) for row in rows)
        else:
            most = max((max(row.hash_ids) for row in rows if row.hash_ids), default=-1)
            highest = (most + 1) * (block_tokens // wanted)
        self._next = highest

    def take(self, count: int) -> range:
        first, self._next = self._next, self._next + max(count, 0)
        return range(first, self._next)
