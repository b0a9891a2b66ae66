"""Number of drafts that each verification of a sequence accepts, known before the sequence runs.

The n-th verification of a sequence accepts the n-th number, or all its drafts if they are fewer.
Verifications are counted from 0 on, through preemptions. So the accepted drafts depend on the
sequence alone, never on how it was scheduled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kvsim.sequence import Sequence as KVSequence

Row = Sequence[int]


class Acceptance(Protocol):
    """Gives the numbers of accepted drafts of a sequence."""

    def of(self, seq: KVSequence) -> Row:
        """Number of accepted drafts of each verification; after the last the list starts again."""
        ...


@dataclass(frozen=True)
class RecordedAcceptance:
    """A given pattern. by_request: patterns of single requests, instead of the common one."""

    pattern: tuple[int, ...]
    by_request: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, seq: KVSequence) -> Row:
        return self.by_request.get(seq.request.id, self.pattern)


@dataclass(frozen=True)
class DrawnAcceptance:
    """Random numbers, drawn for each sequence from its id and the seed.

    rates[i]: probability that the first i + 1 drafts are accepted; it never rises with i. seed:
    equal seeds give equal numbers.
    """

    rates: tuple[float, ...]
    seed: int

    def of(self, seq: KVSequence) -> Row:
        """One number for each output token, as each verification outputs at least one."""
        name = crc32(f"acceptance of {seq.id}".encode())
        draws = np.random.Generator(np.random.PCG64([self.seed, name])).random(seq.output_tokens)
        accepted = len(self.rates) - self._rising.searchsorted(draws, side="right")
        return accepted.tolist()  # type: ignore[no-any-return]  # numpy types it so

    @cached_property
    def _rising(self) -> NDArray[np.float64]:
        return np.array(self.rates[::-1])
