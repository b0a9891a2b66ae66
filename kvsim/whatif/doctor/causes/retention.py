"""Windows cached only at the ends of prompts: prefixes shared in the middle are not hit."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

_KEY = "prefix_cache_retention_interval"


class SparseRetention(Cause):
    """Suspected if a model with windows or states does not cache all places.

    It must hit a twentieth of the prompts less than an LRU cache as large as the pool.
    """

    title: ClassVar[str] = "a prefix cache that keeps too few places to continue from"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        if not case.caching or not hasattr(case.allocator, _KEY) or not case.several_tables:
            return None
        given = case.option(case.allocator, _KEY)
        old = case.option(case.scheduler, "semantics") == "vllm-0.11"
        if given == "none" or old:
            return None
        possible = case.curve(case.block_tokens).ratio(case.capacity_tokens)
        if possible - case.hit_share < SUBSTANTIAL:
            return None
        now = given or 0
        evidence = (
            f"{100 * case.hit_share:.1f} % of the prompts were found; a cache that keeps every "
            f"block, of the pool's {case.capacity_tokens:,} tokens, has {100 * possible:.1f} %",
            f"of windows and states, places are kept {_where(now)}",
        )
        block = case.block_tokens
        dense = [tokens for tokens in (block * 64, block * 16) if not now or tokens < now]
        cures = [Cure({f"allocator.0.{_KEY}": each}, f"{_FLAG} {each}") for each in dense]
        cures.append(Cure({f"allocator.0.{_KEY}": "none"}, f"{_FLAG} None"))
        return Suspicion(evidence, tuple(cures))


_FLAG = "--prefix-cache-retention-interval"


def _where(interval: int) -> str:
    if not interval:
        return "at the ends of prompts and where prefixes were seen to part (interval 0)"
    return f"every {interval:,} tokens"
