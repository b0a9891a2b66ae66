"""Parse out-of-memory errors in a log, in torch's wording."""

import re

from kvsim.interchange.torch_snapshot.out_of_memory import OutOfMemory
from kvsim.plumbing.units import GIB, KIB, MIB

_UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = r"([\d.]{1,20}) (bytes|[KMG]iB)"
# From torch 2.1 on, and before.
_NEWER = re.compile(
    rf"Tried to allocate {_SIZE}\. GPU (\d+) has a total capacity of {_SIZE} of which "
    rf"{_SIZE} is free"
)
# The same message has it some 200 characters later.
_UNALLOCATED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_REST = 1000
_OLDER = re.compile(
    rf"Tried to allocate {_SIZE} \(GPU (\d+); {_SIZE} total capacity; {_SIZE} already allocated; "
    rf"{_SIZE} free; {_SIZE} reserved in total by PyTorch"
)
SIGN = "Tried to allocate "


def failures_of(text: str) -> list[OutOfMemory]:
    """All failed requests that the log reports, in order."""
    found: list[tuple[int, OutOfMemory | None]] = [
        (each.start(), _newer(each, text)) for each in _NEWER.finditer(text)
    ]
    found += [(each.start(), _older(each)) for each in _OLDER.finditer(text)]
    ordered = sorted(found, key=lambda pair: pair[0])
    return [failure for _, failure in ordered if failure is not None]


def _newer(match: re.Match[str], text: str) -> OutOfMemory | None:
    """Parse a message of newer torch versions; None if its end is missing."""
    rest = text[match.end() : match.end() + _REST].partition(SIGN)[0]
    unallocated = _UNALLOCATED.search(rest)
    if unallocated is None:
        return None
    asked, free, unused = _bytes(match, 1), _bytes(match, 6), _bytes(unallocated, 1)
    return OutOfMemory(int(match[3]), asked, free, unused)


def _older(match: re.Match[str]) -> OutOfMemory:
    asked, allocated, free, reserved = (_bytes(match, at) for at in (1, 6, 8, 10))
    return OutOfMemory(int(match[3]), asked, free, max(reserved - allocated, 0))


def _bytes(match: re.Match[str], at: int) -> int:
    return round(float(match[at]) * _UNITS[match[at + 1]])
