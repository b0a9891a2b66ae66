"""Checks parts against the table of refused pairs, row by row.

A caller that knows some parts of a server calls `check` with them. Parts that are not given have
defaults that no row refuses, so a row has no effect before both its parts are known. Each tier
lists the other parts that it works with in `TierOptions.serves`.
"""

from kvsim.plumbing.errors import InputError
from kvsim.support.pair import Text
from kvsim.support.parts import ServerParts
from kvsim.support.rows import ROWS


def check(parts: ServerParts) -> None:
    """Raise InputError for the first row that refuses `parts`."""
    refused = refusal_of(parts)
    if refused is not None:
        raise refused


def refusal_of(parts: ServerParts) -> InputError | None:
    """The error of the first row that refuses `parts`; None if no row does."""
    for row in ROWS:
        if row.refused(parts):
            return InputError(
                _text(row.reason, parts),
                where=_text(row.where, parts),
                value=row.value(parts),
                limit=row.limit(parts) if callable(row.limit) else row.limit,
                remedy=row.remedy,
            )
    return None


def _text(text: Text, parts: ServerParts) -> str:
    return text if isinstance(text, str) else text(parts)
