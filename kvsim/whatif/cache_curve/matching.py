"""The units of tokens in which a pool matches prefixes, and their effect on the hit rate."""

from typing import NamedTuple

from kvsim.memory.paged.options import Paged
from kvsim.report.numbers import percent
from kvsim.simulation import Simulation
from kvsim.vllm.grouping import is_uniform
from kvsim.whatif.watch import SUBSTANTIAL

LEAST_GAIN = 0.01  # of the prompt tokens


class Matching(NamedTuple):
    """The block sizes at which a pool matches prefixes.

    block_tokens: planned block size at which the blocks of all KV cache groups end. asked_tokens:
    the configured block size; a block grows if it must hold a recurrent state. unit_tokens: hits
    end at multiples of this. states: whether blocks hold recurrent states.
    """

    block_tokens: int
    asked_tokens: int
    unit_tokens: int
    states: bool = False

    def is_to_blame(self, whole: float, fine: float) -> bool:
        """Whether large blocks lower the hit rate enough for a note: `whole` is the rate with these
        blocks, `fine` the rate with finer units.

        Blocks of different sizes always lose the end of some hits, which does not count.
        """
        apart = self.block_tokens > self.asked_tokens and not self.states
        return fine - whole > (SUBSTANTIAL if apart else 0.0)


def matching(simulation: Simulation, paged: Paged) -> Matching:
    """The block sizes that the allocator `paged` plans for the scenario's model."""
    asked = block = end = paged.block_size
    states = False
    rules = simulation.replica_spec(paged).scheduler.block_rules
    windows = not paged.disable_hybrid_kv_cache_manager
    if rules.several_tables and not is_uniform(simulation.layout, windows=windows):
        grouping = paged.grouping(simulation.layout, rules)
        block = end = grouping.hit_tokens
        states = any(group.state_bytes for group in grouping.groups)
        if states:
            end = paged.prefix_match_unit or end
    return Matching(block, asked, end, states)


def unit_to_try(found: Matching) -> int | None:
    """A prefix_match_unit with which hits could end inside blocks: the current one, or else one
    near 32 tokens. None if blocks hold no states, or have not grown for states.
    """
    if not found.states:
        return None
    if found.unit_tokens < found.block_tokens:
        return found.unit_tokens
    if found.block_tokens == found.asked_tokens:
        return None
    units = [unit for unit in range(8, 129) if found.block_tokens % unit == 0]
    return min(units, key=lambda unit: abs(unit - 32), default=found.asked_tokens)


def why(
    found: Matching, whole: float, fine: float, fine_tokens: int, inside: float | None = None
) -> str:
    """A sentence on why the block size limits the hit rate.

    whole: hit rate in blocks. fine: hit rate in units of fine_tokens. inside: hit rate if hits may
    end inside blocks (see `unit_to_try`).
    """
    grown = ""
    if found.block_tokens > found.asked_tokens:
        if not found.states:
            return (
                f"The blocks of all groups of layers end together every {found.block_tokens:,} "
                f"tokens, where alone a hit can end: {percent(whole)} of the prompt tokens could "
                f"ever be found where blocks of {fine_tokens} tokens would find {percent(fine)}."
            )
        grown = ", since it must hold a recurrent state,"
    return (
        f"A block holds {found.block_tokens:,} tokens{grown} and is found whole or not at all. "
        f"{percent(whole)} of the prompt tokens could ever be found where blocks of {fine_tokens} "
        f"tokens would find {percent(fine)}. {_cure(found, whole, inside)}"
    )


def _cure(found: Matching, whole: float, inside: float | None) -> str:
    unit = unit_to_try(found)
    if unit is None or inside is None:
        return "Smaller blocks find more."
    lets = f"prefix_match_unit = {unit} lets hits end inside a block, but only where a prompt ended"
    if inside - whole < LEAST_GAIN:
        return (
            f"{lets}. No prompt here continues an earlier one, so it finds no more. A shared "
            f"prefix is found once it fills {found.block_tokens:,} tokens."
        )
    return f"{lets} (vLLM 0.27 and later). That could find {percent(inside)}."
