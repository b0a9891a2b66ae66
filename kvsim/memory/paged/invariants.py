"""Invariants of a pool of blocks and of the block tables over it, recounted block by block."""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.blocks import BLANK, PROMPT, Extent, Part, Table, extents_of
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.tables import BlockTables
from kvsim.plumbing.errors import InvariantError
from kvsim.vllm.rules import FIRST_BLOCK


def check_pool(
    pool: BlockPool, tables: Iterable[list[Part]], held: int, blocks: Iterable[list[int]]
) -> None:
    """Raise InvariantError unless held and free blocks are all blocks, and all cached content is in
    one of these blocks. held: number of blocks counted by tables. tables: extents of each table;
    blocks: block numbers of each table.
    """
    if pool.tracked:
        free = pool.numbers()
        both = {block for each in blocks for block in each}.union(free)
        if len(free) != pool.num_free or both != set(range(FIRST_BLOCK, pool.num_blocks)):
            raise InvariantError(f"a block of {pool.num_blocks} is lost, or free and held")
    owners: dict[Extent, int] = {}
    for parts in tables:
        for extent in extents_of(parts):
            owners[extent] = owners.get(extent, 0) + 1
    wrong = [extent.owners for extent, count in owners.items() if extent.owners != count]
    shared = sum((count - 1) * extent.num for extent, count in owners.items())
    if wrong or shared != pool.num_shared:
        raise InvariantError(f"{shared} blocks shared, counted {pool.num_shared}: {wrong}")
    waiting = list(pool.waiting())
    content = [extent for extent in waiting if extent.key != BLANK]
    cached = sum(extent.num for extent in content)
    num_free = pool.front.num + sum(extent.num for extent in waiting)
    if num_free != pool.num_free or cached != pool.num_cached_free:
        raise InvariantError(f"{num_free} free blocks, {cached} cached, miscounted")
    if any(extent.num < extent.num_prompt for extent in content):
        raise InvariantError("more blocks of a prompt than blocks")
    kept = [0, 0, 0, 0]
    for extent in content:
        if extent.why != PROMPT:
            kept[extent.why] += extent.num - extent.num_prompt
    if kept != pool.kept:
        raise InvariantError(f"cached blocks by reason are {kept}, counted {pool.kept}")
    if held - shared + num_free != pool.num_blocks - FIRST_BLOCK:
        raise InvariantError(f"{held - shared} held + {num_free} free blocks")
    if any(extent.owners for extent in content) or any(map(owners.__contains__, content)):
        raise InvariantError("an extent is held and free")
    known = sum(each.check() for each in pool._known)
    extents = [extent for extent in (*content, *owners) if extent.key >= 0]
    held_known = sum(extent.num + len(extent.aliases) for extent in extents)
    if known != held_known:
        raise InvariantError(f"{known} blocks are known, {held_known} hold what is known")


def check_tables(
    tables: BlockTables, live: Iterable[tuple[int, Table]], copied: Sequence[Extent]
) -> None:
    """Raise InvariantError unless the totals of `tables` equal those of `live`, pairs of valid
    slots and table. copied: single blocks that copies to host memory hold.
    """
    ends = tables.copies.ends
    states = pad = 0
    num_blocks, seen = len(ends), set[Extent]()
    parts: list[list[Part]] = [[(0, extent, 1) for extent in ends]]
    lists = [extent.blocks for extent in ends]
    used = 0
    valid: dict[Extent, int] = {}  # bytes of valid slots by block
    for tokens, table in live:
        held = tables.held_blocks(table)
        num_blocks += sum(held)
        numbers = [tables._numbers(table, g) for g in range(len(tables.groups))]
        lists += numbers
        if tables._tracked and held != [len(blocks) for blocks in numbers]:
            raise InvariantError(f"{held} blocks held in lists of other lengths")
        for g, group in enumerate(tables.groups):
            parts.append(table.parts[g])
            extents = extents_of(table.parts[g])
            shared = sum(extent.num for extent in extents if extent in seen)
            seen.update(extents)
            pad += (held[g] - shared) * tables.shapes.pads[g]
            states += (held[g] - shared) * group.state_bytes
            if group.state_bytes:
                states -= tables.shapes.scratch * group.state_bytes
            elif tables._singly[g]:
                for place, extent, _ in table.parts[g]:
                    slots = min(group.block_size, tokens - place * group.block_size)
                    valid[extent] = max(slots * group.slot_bytes, valid.get(extent, 0))
            else:
                start = (table.skipped[g] + shared) * group.block_size
                used += max(0, tokens - start) * group.slot_bytes  # a load may end behind a window
    for block in set(copied) - seen:  # full blocks that no sequence holds
        group = tables.groups[block.group]
        used += 0 if group.state_bytes else group.block_size * group.slot_bytes
        states += group.state_bytes
        pad += tables.shapes.pads[block.group]
    parts += [[(0, block, 1)] for block in copied]
    lists += [block.blocks for block in copied]
    check_pool(tables._pool, parts, num_blocks + len(copied), lists)
    found = used + sum(valid.values()) + states, states, pad
    booked = tables.used_bytes, tables.state_bytes, tables.pad_bytes
    if found != booked:
        raise InvariantError(f"used, states and padding are {found} bytes, booked as {booked}")


def check_slots(books: BlockTables, tables: Iterable[tuple[Table, int]], draft_slots: int) -> None:
    """Raise InvariantError unless the slot totals equal those of these tables. Each comes with its
    final slots; draft_slots: slots of drafts.
    """
    over = sum(books.unfilled_bytes(table.count, final) for table, final in tables)
    if (over, draft_slots) != (books.over_bytes, books.draft_slots):
        raise InvariantError(
            f"{over} over-provisioned bytes and {draft_slots} slots of drafts, booked as"
            f" {books.over_bytes} and {books.draft_slots}"
        )
