"""A row of the table of refused pairs."""

from collections.abc import Callable
from typing import NamedTuple

from kvsim.support.parts import ServerParts

Text = str | Callable[[ServerParts], str]


class RefusedPair(NamedTuple):
    """A row: parts `one` and `other` do not run together if `refused` is true.

    reason, where, value, limit, remedy: fields of the error. by: the real engine that refuses the
    pair itself; "": the pair is only not simulated.
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
