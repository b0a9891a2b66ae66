"""The accounting of hits in tiers, and of the time that computing the loaded tokens would have
taken.
"""

from kvsim.results.recorder import Recorder
from kvsim.results.tier_hits import TierHit, TierHits
from kvsim.sequence import Sequence
from kvsim.step import Chunk, StepShape
from kvsim.step_time.form import StepTime


class TierBooks:
    """Writes the tier hits of one engine into its recorder.

    storage_hit_tokens: tokens of first admissions that were read from the tier after host memory.
    recompute_ps: by how much longer steps would have taken to compute the loaded tokens of all
    sequences (`kvsim.results.tier_hits`).
    """

    def __init__(self, recorder: Recorder, step_time: StepTime) -> None:
        self._found: dict[str, TierHits] = {}
        recorder.tier_hits = self._found
        self._step_time = step_time
        self.storage_hit_tokens = self.recompute_ps = 0

    def found(self, seq: Sequence, hit: TierHit) -> None:
        """Record a load of `seq`, when it starts or when the sequence is admitted."""
        hits = self._of(seq)
        if not seq.num_preemptions:
            hits.tokens += hit.tokens
            hits.storage_tokens += hit.storage_tokens
            self.storage_hit_tokens += hit.storage_tokens
        end = hit.prior_tokens + hit.tokens
        rest = max(1, seq.num_tokens - end)
        longer_ps = self._prompt_ps(hit.tokens + rest, hit.prior_tokens) - self._prompt_ps(
            rest, end
        )
        hits.recompute_ps += longer_ps
        self.recompute_ps += longer_ps

    def waited(self, seq: Sequence, wait_ps: int) -> None:
        """Record that `seq` waited wait_ps for a load."""
        self._of(seq).wait_ps += wait_ps

    def _of(self, seq: Sequence) -> TierHits:
        return self._found.setdefault(seq.id, TierHits())

    def _prompt_ps(self, new_tokens: int, prior_tokens: int) -> int:
        chunk = Chunk(new_tokens, prior_tokens)
        return self._step_time.step_ps(StepShape((chunk,), 0, 0))
