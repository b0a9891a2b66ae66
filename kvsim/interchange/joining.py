"""Several records of the same requests as one: by their ids, or by their order and lengths."""

import re
from collections.abc import Sequence

from kvsim.readers.description import Requests, SourceRequest

_WRAPPED = re.compile(r"^(?:cmpl-|chatcmpl-|resp-)|-\d+$")
_FIELDS = ("output_tokens", "first_token_ns", "last_token_ns", "session", "cached_tokens")
Named = tuple[str, Requests | None]


def join(named: Sequence[Named], notes: list[str]) -> Requests | None:
    """The requests of one source, with the fields that only other sources have.

    The source taken is the one that timed the requests; where none did, the one that has their
    output lengths; else the first. named: each source's name and requests. notes: gets a line for
    each source that has other requests and is left out.
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
    """The other source's row for each row; None where the two sources are not of one run."""
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
    """A client's request id, without the prefix and suffix that servers add."""
    while (bare := _WRAPPED.sub("", name)) != name:
        name = bare
    return name


def _filled(main: Requests, other: Requests, pairs: Sequence[SourceRequest | None]) -> Requests:
    """The rows of `main`, with what they lack."""
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
