"""What requests have put out, and what they may still: SGLang plans memory by these counts."""

from collections.abc import Iterable
from math import ceil

from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.schedulers.sglang.budget import CLIP_MAX_NEW_TOKENS
from kvsim.engine.schedulers.sglang.in_flight import InFlight
from kvsim.sequence import Sequence


class Outputs:
    """wishes: max_new_tokens of each request that waits or runs, cut to what the engine allows.

    all_counts: how many of these ask for all their tokens (ignore_eos), none of which the ratio
    discounts.
    """

    def __init__(self, batch: DecodeBatch, in_flight: InFlight) -> None:
        self._batch, self._in_flight = batch, in_flight
        self.wishes: dict[Sequence, int] = {}
        self.all_counts = 0

    def add(self, seq: Sequence, max_new_tokens: int) -> None:
        """`seq` has come."""
        self.wishes[seq] = max_new_tokens
        self.all_counts += seq.request.ignore_eos

    def remove(self, seq: Sequence) -> None:
        """It has left."""
        del self.wishes[seq]
        self.all_counts -= seq.request.ignore_eos

    def of(self, seq: Sequence) -> int:
        """Tokens of a running request that have returned."""
        outputs = seq.num_outputs
        if seq.decoding:
            outputs = self._batch.slots(seq) - seq.prompt_tokens + 1
        return outputs - self._in_flight.has_token_of(seq)

    def end_by_length(self, seq: Sequence) -> bool:
        """Whether `seq` puts out all it wished for."""
        return seq.output_tokens >= self.wishes[seq]

    def held_back(self, decoders: Iterable[Sequence], ratio: float) -> float:
        """Tokens that those who decode may still put out, as far as the ratio counts them; summed
        in their order, as the engine does.
        """
        wishes, clock, held = self.wishes, self._batch.clock, 0.0
        everybody, begun = self._in_flight.unreturned_tokens
        for seq in decoders:
            outputs = seq.num_outputs
            if seq.decoding:  # as `of`, which is too slow for all that run at every pass
                outputs = seq.base + clock - seq.prompt_tokens + 1
            rest = wishes[seq] - outputs + (everybody or seq in begun)
            if rest > CLIP_MAX_NEW_TOKENS:
                rest = CLIP_MAX_NEW_TOKENS
            held += rest if seq.request.ignore_eos else rest * ratio
        return held

    def most_held_back(self, num: int, ratio: float) -> int:
        """No less than what `held_back` says of `num` that decode."""
        return num * ceil(CLIP_MAX_NEW_TOKENS * (1.0 if self.all_counts else ratio))

    def by_retraction(self, decoders: Iterable[Sequence]) -> list[Sequence]:
        """The last is retracted first: who has the fewest outputs, of those alike who has the
        longest prompt, of these the last.
        """
        return sorted(decoders, key=lambda s: (self.of(s), -s.prompt_tokens), reverse=True)
