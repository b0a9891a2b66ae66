"""The ledger of a pool cut into blocks, by what its tables say they hold."""

from kvsim.memory.ledger import Usage, split_free, usage_of
from kvsim.memory.paged.kept import OUTPUT, STATE, WINDOW
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.parts import (
    CACHED_OUTPUTS,
    CACHED_STATES,
    CACHED_WINDOWS,
    DRAFT_SLOTS,
    LEFT_BEHIND,
    NO_PARTS,
    STATES,
    Parts,
)


def block_usage(
    shape: BlockShape, pool: Pool, used: int, over: int, pad: int, head_blocks: int | None
) -> Usage:
    """The ledger now. used, over, pad: bytes in held blocks that are valid, that will never be
    filled, and that no slot can fill. head_blocks: what the head of the queue asks to be free;
    None: nobody waits.
    """
    block_bytes = shape.block_bytes
    held = (shape.usable_blocks - pool.num_free) * block_bytes
    cached = pool.num_cached_free * block_bytes
    need = None if head_blocks is None else head_blocks * block_bytes
    free = pool.num_free * block_bytes - cached
    external, short, idle = split_free(free, cached, need, placeable=True)
    reserved = held - used - over - pad
    metadata = shape.metadata_bytes
    return usage_of((used, reserved, over, pad, cached, 0, metadata, external, short, idle))


def block_parts(
    shape: BlockShape, pool: Pool, drafts: int = 0, *, behind: int = 0, states: int = 0
) -> Parts:
    """What of it has a name of its own. drafts, behind, states: bytes for drafts, that windows have
    left behind, and of states that somebody holds.
    """
    block_bytes, kept = shape.block_bytes, pool.kept.nums
    found: list[tuple[int, int]] = []
    if behind:
        found.append((LEFT_BEHIND, behind))
    if drafts:
        found.append((DRAFT_SLOTS, drafts))
    if states:
        found.append((STATES, states))
    outputs, windows, checkpoints = kept[OUTPUT], kept[WINDOW], kept[STATE]
    if outputs:
        found.append((CACHED_OUTPUTS, outputs * block_bytes))
    if windows:
        found.append((CACHED_WINDOWS, windows * block_bytes))
    if checkpoints:
        found.append((CACHED_STATES, checkpoints * block_bytes))
    return tuple(found) if found else NO_PARTS
