"""Draft heads (EAGLE, MTP) that lose the last block of every hit."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

_KEY = "speculative_config.disable_lookahead_block_hashes"


class LostBlock(Cause):
    """Suspected if hits lose their last block to a head that reads the target's states (eagle,
    eagle3, mtp, without lookahead hashes).

    A block for each prompt that shares one must be a twentieth of all prompt tokens.
    """

    title: ClassVar[str] = "hits that lose their last block to the drafting head"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        config = case.simulation.scenario.speculative_config
        if config is None or not case.caching or not config.speculation.drops_last_block:
            return None
        block = case.block_tokens
        asked = case.summary.prefix_cache.query_tokens
        possible = case.curve(block).ratio(case.capacity_tokens)
        lost = min(possible - case.hit_share, block * case.num_requests / asked)
        if lost < SUBSTANTIAL:
            return None
        evidence = (
            f"{config.method} makes every hit lose its last block, and a block holds {block:,} "
            f"tokens: {100 * case.hit_share:.1f} % of the prompts were found, and a cache of the "
            f"pool's size has {100 * possible:.1f} %",
        )
        flags = "--speculative-config without disable_lookahead_block_hashes (vLLM 0.33 or later)"
        return Suspicion(evidence, (Cure({_KEY: None}, flags),))
