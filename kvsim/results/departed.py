"""Finished sequences as flat columns of times, without the sequence objects."""

from array import array
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from kvsim.request import Request
from kvsim.sequence import Sequence as KVSequence


class Departed(NamedTuple):
    """A sequence that has all its tokens, with the names of `kvsim.sequence.Sequence`.

    arrival_ps: when its client sent it.
    """

    request: Request
    id: str
    arrival_ps: int
    first_scheduled_ps: int
    first_token_ps: int
    prompt_tokens: int
    output_tokens: int
    hit_tokens: int
    num_preemptions: int

    @property
    def final_tokens(self) -> int:
        """Number of KV slots that the sequence held at its end."""
        return self.prompt_tokens + max(0, self.output_tokens - 1)


NUMBERS = Departed._fields[2:]
_row = Struct(f"{len(NUMBERS)}q").pack


class Finished(Sequence[Departed]):
    """The finished sequences in the order of their end. requests, ids: request and id of each."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.ids: list[str] = []
        self._numbers = array("q")

    def append(self, seq: KVSequence) -> None:
        """Add a sequence that has all its tokens."""
        self.requests.append(seq.request)
        self.ids.append(seq.id)
        row = _row(
            seq.arrival_ps - seq.request.front_end_ps,
            seq.first_scheduled_ps,
            seq.first_token_ps,
            seq.prompt_tokens,
            seq.output_tokens if seq.request.output_tokens else 0,
            seq.hit_tokens,
            seq.num_preemptions,
        )
        self._numbers.frombytes(row)

    @classmethod
    def together(cls, parts: Sequence["Finished"], order: Sequence[int]) -> "Finished":
        """The finished requests of several runs. order: the indices of all parts' rows, in the
        wanted order.
        """
        found = cls()
        requests = [request for part in parts for request in part.requests]
        ids = [name for part in parts for name in part.ids]
        rows = b"".join(part._numbers.tobytes() for part in parts)
        numbers = np.frombuffer(rows, dtype=np.int64).reshape(-1, len(NUMBERS))
        found.requests = [requests[at] for at in order]
        found.ids = [ids[at] for at in order]
        found._numbers.frombytes(np.ascontiguousarray(numbers[list(order)]).tobytes())
        return found

    def column(self, name: str) -> NDArray[np.int64]:
        """(n,) values of one of NUMBERS, for all sequences."""
        numbers = np.frombuffer(self._numbers, dtype=np.int64).reshape(-1, len(NUMBERS))
        return numbers[:, NUMBERS.index(name)].copy()

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Departed: ...

    @overload
    def __getitem__(self, index: slice) -> list[Departed]: ...

    def __getitem__(self, index: int | slice) -> Departed | list[Departed]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        first = place * len(NUMBERS)
        numbers = self._numbers[first : first + len(NUMBERS)]
        return Departed(self.requests[place], self.ids[place], *numbers)

    def __iter__(self) -> Iterator[Departed]:
        return map(self.__getitem__, range(len(self)))
