"""Combine records of the same requests from several sources: by request id, or by order and
lengths.
"""

import re
from collections.abc import Sequence

from kvsim.readers.description import Requests, SourceRequest

_WRAPPED = re.compile(r"^(?:cmpl-|chatcmpl-|resp-)|-\d+$")
_FIELDS = ("output_tokens", "first_token_ns", "last_token_ns", "session", "cached_tokens")
Named = tuple[str, Requests | None]


def join(named: Sequence[Named], notes: list[str]) -> Requests | None:
    """The requests of the best source, with missing fields filled in from the others.

    The best source has times of the requests; else output lengths; else it is the first. named
    pairs each source's name with its requests. A source with other requests is left out, and a note
    says so.
    """
    known = [(name, requests) for name, requests in named if requests is not None]
    if not known:
        return None
    main_name, main = max(known, key=lambda each: _worth(each[1]))
    for name, other in known:
        if other is main:
            continue
        pairs = _pairs(main.rows, other.rows)
        if pairs is None:
            notes.append(
                f"{name} has {len(other.rows):,} requests that are not the "
                f"{len(main.rows):,} of {main_name}: they are left out"
            )
            continue
        main = _filled(main, other, pairs)
    return main


def _worth(requests: Requests) -> tuple[bool, bool, bool]:
    first = requests.rows[0]
    return (first.last_token_ns is not None, first.output_tokens is not None,
            first.arrival_ns is not None)  # fmt: skip


def _pairs(
    rows: Sequence[SourceRequest], others: Sequence[SourceRequest]
) -> list[SourceRequest | None] | None:
    """For each row the matching row of the other source, by id or else by order; None if the
    sources are of different runs.
    """
    by_id = {_bare(row.id): row for row in others}
    found = [by_id.get(_bare(row.id)) for row in rows]
    if 2 * sum(each is not None for each in found) > len(rows):
        return found
    if len(rows) != len(others):
        return None
    for row, other in zip(rows, others, strict=True):
        for name in ("prompt_tokens", "output_tokens"):
            mine, its = getattr(row, name), getattr(other, name)
            if mine is not None and its is not None and mine != its:
                return None
    return list(others)


def _bare(name: str) -> str:
    """A request id without the prefixes and suffixes that servers add, such as `cmpl-` and `-0`."""
    while (bare := _WRAPPED.sub("", name)) != name:
        name = bare
    return name


def _filled(main: Requests, other: Requests, pairs: Sequence[SourceRequest | None]) -> Requests:
    """The requests of `main`; a field that is None is taken from the paired row of `other`."""
    takes_hashes = main.hash_block_tokens is None and other.hash_block_tokens is not None
    rows = []
    for row, its in zip(main.rows, pairs, strict=True):
        if its is not None:
            names = [name for name in _FIELDS if getattr(row, name) is None]
            if main.clock != other.clock or row.arrival_ns is None:
                names = [name for name in names if not name.endswith("_ns")]
            row = row._replace(**{name: getattr(its, name) for name in names})
            if takes_hashes:
                row = row._replace(hash_ids=its.hash_ids)
        rows.append(row)
    size = other.hash_block_tokens if takes_hashes else main.hash_block_tokens
    return Requests(tuple(rows), main.clock, size)
