"""How many drafts each verification of a sequence accepts: known before the sequence runs.

The n-th verification of a sequence accepts the n-th number, or all its drafts if they are fewer.
Steps scheduled with drafts count, from 0 and on through preemptions. So what comes of a step
depends on the sequence alone, never on how it was scheduled.
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
    """Source of the numbers of accepted drafts."""

    def of(self, seq: KVSequence) -> Row:
        """Accepted drafts by verification, begun again from the first after the last."""
        ...


@dataclass(frozen=True)
class RecordedAcceptance:
    """A pattern as it was recorded. by_request: for those that have one of their own."""

    pattern: tuple[int, ...]
    by_request: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, seq: KVSequence) -> Row:
        return self.by_request.get(seq.request.id, self.pattern)


@dataclass(frozen=True)
class DrawnAcceptance:
    """Drawn for each sequence from a generator of its own.

    rates: the chance that the draft at each position, and all before it, are accepted; it never
    rises. seed: two runs with the same one accept the same.
    """

    rates: tuple[float, ...]
    seed: int

    def of(self, seq: KVSequence) -> Row:
        """One number for each verification it can have: each puts out a token at least."""
        name = crc32(f"acceptance of {seq.id}".encode())
        draws = np.random.Generator(np.random.PCG64([self.seed, name])).random(seq.output_tokens)
        accepted = len(self.rates) - self._rising.searchsorted(draws, side="right")
        return accepted.tolist()  # type: ignore[no-any-return]  # numpy types it so

    @cached_property
    def _rising(self) -> NDArray[np.float64]:
        return np.array(self.rates[::-1])
