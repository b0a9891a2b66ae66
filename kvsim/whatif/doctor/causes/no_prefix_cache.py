"""Prompts with a common prefix, computed without a prefix cache."""

from typing import ClassVar

from kvsim.scenario.build.context_parallel import BLOCK_SIZE
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class NoPrefixCache(Cause):
    """Suspected if an allocator could cache prefixes and does not, and an LRU cache of the pool's
    size would hit a twentieth of the prompts.
    """

    title: ClassVar[str] = "prompts with shared prefixes and no prefix cache"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        if case.option(case.allocator, "enable_prefix_caching") is not False:
            return None
        possible = case.curve(BLOCK_SIZE).ratio(case.capacity_tokens)
        if possible < SUBSTANTIAL:
            return None
        evidence = (
            f"a cache of the pool's {case.capacity_tokens:,} tokens would have found "
            f"{100 * possible:.0f} % of the prompt tokens, and there is none",
        )
        changes = {"allocator.0.enable_prefix_caching": True}
        return Suspicion(evidence, (Cure(changes, "--enable-prefix-caching"),))
