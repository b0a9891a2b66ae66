"""Blocks larger than the prefixes that prompts share: a hit is whole blocks or none."""

from typing import ClassVar

from kvsim.scenario.build.context_parallel import BLOCK_SIZE
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class BlockOverPrefix(Cause):
    """Suspected if blocks of the usual size would hit a twentieth more of the prompts, even in an
    infinite cache.
    """

    title: ClassVar[str] = "blocks larger than what prompts share"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        given = case.option(case.allocator, "block_size")
        if not case.caching or given is None:
            return None
        block = case.block_tokens
        if block <= BLOCK_SIZE:
            return None
        now, fine = case.curve(block).unlimited, case.curve(BLOCK_SIZE).unlimited
        if fine - now < SUBSTANTIAL:
            return None
        evidence = [
            f"a block holds {block:,} tokens and is found whole or not at all: of the prompts "
            f"{100 * now:.1f} % could be found, in blocks of {BLOCK_SIZE} {100 * fine:.1f} %; "
            f"{100 * case.hit_share:.1f} % were"
        ]
        states = any(group.state_bytes for group in case.simulation.layout.groups)
        if block > given and not states:
            evidence.append(
                f"the blocks of all groups of layers end together every {block:,} tokens, those "
                f"of some have {given}"
            )
        elif block > given:
            evidence.append(
                f"blocks have grown from {given} tokens until one holds a recurrent state, as the "
                f"engine makes them: prompts find each other from {block:,} shared tokens on"
            )
        cures = []
        if given > BLOCK_SIZE:
            changes = {"allocator.0.block_size": BLOCK_SIZE}
            cures.append(Cure(changes, f"--block-size {BLOCK_SIZE}"))
        return Suspicion(tuple(evidence), tuple(cures))
