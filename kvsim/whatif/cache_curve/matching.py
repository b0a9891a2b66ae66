"""In what units a pool matches prefixes, and what of a stream that leaves to be found."""

from typing import NamedTuple

from kvsim.memory.paged.groups.grouping import group_layers, is_uniform
from kvsim.memory.paged.options import Paged
from kvsim.report.numbers import percent
from kvsim.simulation import Simulation


class Matching(NamedTuple):
    """block_tokens: of a block as planned. asked_tokens: of one as asked for; a block that must
    hold a recurrent state grows. unit_tokens: after which a hit may end.
    """

    block_tokens: int
    asked_tokens: int
    unit_tokens: int


def matching(simulation: Simulation, paged: Paged) -> Matching:
    """As `paged` plans the scenario's model."""
    asked = block = end = paged.block_size
    rules = simulation.replica_spec(paged).scheduler.block_rules
    windows = not paged.disable_hybrid_kv_cache_manager
    if rules.several_tables and not is_uniform(simulation.layout, windows=windows):
        grouping = group_layers(
            simulation.layout,
            asked,
            commonest_sizes_groups=rules.commonest_sizes_groups,
            unequal_blocks=rules.unequal_blocks,
        )
        block, end = grouping.block_size, grouping.hit_tokens
        if any(group.state_bytes for group in grouping.groups):
            end = paged.prefix_match_unit or end
    return Matching(block, asked, end)


def why(found: Matching, whole: float, fine: float, fine_tokens: int) -> str:
    """Why so little is found, where blocks are to blame: `whole` of the prompt tokens in blocks,
    `fine` in units of fine_tokens.
    """
    grown = ""
    if found.block_tokens > found.asked_tokens:
        grown = ", since it must hold a recurrent state,"
    cure = "smaller blocks find more."
    if found.unit_tokens < found.block_tokens:
        cure = f"prefix_match_unit = {found.unit_tokens} lets hits end at a prompt's last unit."
    elif grown:
        units = [unit for unit in range(8, 129) if found.block_tokens % unit == 0]
        unit = min(units, key=lambda unit: abs(unit - 32), default=found.asked_tokens)
        cure = (
            f"prefix_match_unit = {unit} lets hits end inside a block, where a prompt ended "
            "before (vLLM 0.33)."
        )
    return (
        f"A block holds {found.block_tokens:,} tokens{grown} and is found whole or not at all: "
        f"{percent(whole)} of the prompt tokens could ever be found where blocks of {fine_tokens} "
        f"tokens would find {percent(fine)}; {cure}"
    )
