"""Schedule policy `shortest-prefill-first`: fewest uncached tokens first."""

from typing import ClassVar

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy, matched
from kvsim.sequence import Sequence


class ShortestPrefillFirst(SchedulePolicy):
    """Fewest uncached tokens first. A chunk of a long prompt is cut so that waiting prompts with
    fewer tokens to compute fit into the same step. It needs a prefix cache.
    """

    looks_up: ClassVar[bool] = True
    without_cache: ClassVar[str | None] = None
    shares_chunks: ClassVar[bool] = True

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        later, entries = matched(waiting, view), view.entries
        return sorted(
            waiting,
            key=lambda seq: (seq in later, entries[seq].work(seq), entries[seq].number),
        )
