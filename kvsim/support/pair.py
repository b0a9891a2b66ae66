"""A row of the table of refused pairs."""

from collections.abc import Callable
from typing import NamedTuple

from kvsim.support.parts import ServerParts

Text = str | Callable[[ServerParts], str]


class RefusedPair(NamedTuple):
    """A row: `one` and `other` do not run together where `refused` holds.

    reason, where, value, limit, remedy: of the error. by: the engine that refuses it itself; "":
    it is not simulated.
    """

    one: str
    other: str
    refused: Callable[[ServerParts], bool]
    reason: Text
    where: Text
    value: Callable[[ServerParts], object]
    remedy: str
    limit: object = None
    by: str = ""
