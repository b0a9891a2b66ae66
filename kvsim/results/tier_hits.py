"""Hits of each sequence in the tiers after the device."""

from typing import NamedTuple


class TierHit(NamedTuple):
    """A load of one sequence.

    tokens: loaded tokens, found in tiers and not on the device; storage_tokens: the part read for
    this sequence from the tier after host memory. prior_tokens: device hits before the loaded
    tokens.
    """

    prior_tokens: int
    tokens: int
    storage_tokens: int


class TierHits:
    """Hits of one sequence: tokens of its first admission that came from host memory.

    Host tokens are all loaded tokens less storage_tokens, which came from the tier after host
    memory. wait_ps: total wait for its loads. recompute_ps: additional step time if the tokens of
    all its loads had been computed.
    """

    __slots__ = ("recompute_ps", "storage_tokens", "tokens", "wait_ps")

    def __init__(self) -> None:
        self.tokens = self.storage_tokens = self.wait_ps = self.recompute_ps = 0


NO_HITS = TierHits()
