"""Runs of blocks (extents): successive blocks of one layer group with the same owners. Cache
lookups return extents, and block tables hold them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.session_hint import NO_HINT
from kvsim.plumbing.errors import InvariantError

NAMELESS = -1  # content that no request can look up
BLANK = -2  # no content
NO_BLOCKS: list[int] = []  # the numbers of blocks that are not tracked; never changed
# Content that ends inside a block has the key of its last unit plus this number.
INSIDE = 1 << 60

# Why free blocks are cached: their use by their last owner. Retention rules distinguish the layers
# of blocks, and prompts from outputs (vLLM 0.33, v1/core/single_type_kv_cache_manager.py).
PROMPT: Final = 0  # full attention, in the prompt of the last owner
OUTPUT: Final = 1  # full attention, behind that prompt
WINDOW: Final = 2
STATE: Final = 3


class Extent:
    """Successive blocks that the same sequences hold, or that wait together in the free queue.

    key: content key of the first block, or NAMELESS, or BLANK; the next blocks have the next keys.
    num: number of blocks. group: the group of layers. blocks: numbers of the blocks if the pool
    tracks them. owners: number of sequences that hold the blocks; 0: the blocks are free.
    is_younger: whether lookups of these keys find older blocks. after: the extent that was cut off
    the end of this one while sequences held both. why: the reason why the free blocks are cached,
    except the first num_prompt, which were in the prompt of their last owner. aliases: further keys
    of a single block, each as an extent `of` that block.
    """

    __slots__ = (
        "after",
        "aliases",
        "blocks",
        "group",
        "is_younger",
        "key",
        "later",
        "num",
        "num_prompt",
        "of",
        "owners",
        "sooner",
        "why",
    )

    def __init__(self, key: int, num: int, group: int = 0) -> None:
        self.key = key
        self.num = num
        self.group = group
        self.blocks: list[int] = NO_BLOCKS
        self.why = 0
        self.num_prompt = 0
        self.owners = 0
        self.is_younger = False
        self.after: Extent | None = None
        self.sooner: Extent | None = None  # the extent that leaves the queue just before this one
        self.later: Extent | None = None
        self.aliases: list[Extent] = NO_EXTENTS
        self.of: Extent | None = None

    @property
    def end(self) -> int:
        """The key after that of the last block."""
        return self.key + self.num

    @property
    def waits(self) -> bool:
        """Whether the blocks are in the free queue, after the blank ones."""
        return not self.owners and self.later is not None

    def cut(self, num: int) -> "Extent":
        """Keep the first `num` blocks, and return the others as an extent.

        It has the same owners or, if free, comes just before this one in the queue.
        """
        rest = Extent(self.key + num, self.num - num, self.group)
        self.num = num
        if self.blocks:
            rest.blocks = self.blocks[num:]
            del self.blocks[num:]
        if self.num_prompt > num:
            rest.num_prompt, self.num_prompt = self.num_prompt - num, num
        rest.why, rest.owners, rest.is_younger = self.why, self.owners, self.is_younger
        if self.owners:
            rest.after, self.after = self.after, rest
        sooner = self.sooner
        if sooner is not None:
            sooner.later = self.sooner = rest
            rest.sooner, rest.later = sooner, self
        return rest

    def chain(self, num: int) -> list["Extent"]:
        """The extents of the first `num` blocks from here on, including extents cut off later."""
        found = [self]
        extent, left = self, num - self.num
        while left > 0:
            after = extent.after
            assert after is not None
            extent = after
            found.append(extent)
            left -= extent.num
        if left:
            raise InvariantError(f"{-left} blocks more than a table holds were not cut off")
        return found


NO_EXTENTS: list[Extent] = []  # never changed


class Found:  # no NamedTuple, whose constructor is interpreted, whatever is compiled
    """Successive blocks of one group of layers with known content.

    num: number of blocks. before: blocks of the first extent that precede them. parts: the extents,
    and the number of blocks in each.
    """

    __slots__ = ("before", "num", "parts")

    def __init__(self, num: int, before: int, parts: list[tuple[Extent, int]]) -> None:
        self.num, self.before, self.parts = num, before, parts

    def without_last(self) -> tuple["Found", "Found"]:
        """All blocks but the last, and the last; only for single blocks."""
        last = Found(1, 0, self.parts[-1:])
        return (Found(self.num - 1, 0, self.parts[:-1]) if self.num > 1 else NOTHING_FOUND), last


# Blocks with keys in a table: position of the first, an extent, and the number of blocks from the
# start of the extent on, including extents cut off behind it.
Part = tuple[int, Extent, int]

NOTHING_FOUND = Found(0, 0, [])
NO_PARTS: list[Part] = []


def extents_of(parts: Iterable[Part]) -> list[Extent]:
    """The extents of these blocks, in order."""
    return [extent for _, head, num in parts for extent in head.chain(num)]


def num_leading_shared(parts: list[Part]) -> int:
    """Number of leading blocks with several owners."""
    num = 0
    for extent in extents_of(parts):
        if extent.owners == 1:
            break
        num += extent.num
    return num


def runs_of(places: Sequence[int]) -> list[tuple[int, int]]:
    """Rising places as runs of successive ones, each as (first, end)."""
    if not places:
        return []
    if places[-1] - places[0] == len(places) - 1:
        return [(places[0], places[-1] + 1)]
    found: list[tuple[int, int]] = []
    start = end = places[0]
    for place in places:
        if place != end:
            found.append((start, end))
            start = place
        end = place + 1
    found.append((start, end))
    return found


class Table:
    """The block tables of one sequence: its slots, their known content, and its blocks in each
    group of layers.

    tokens: slots while the sequence does not decode. base: slots minus the decoders' clock while it
    decodes. joined: slots when it began to decode. returned: slots with content known then, or with
    its first step. since: clock at which it began to decode. processed: slots of steps that had
    returned at `since`. computed: slots before its last step, while it does not decode. drafts:
    slots allocated beyond those valid when the last step has returned. launches: its last steps
    that may be in flight, oldest first, each with the slots before it. Of a decoder's steps only
    the last one is stored.

    runs: content keys of its leading blocks, or of the units of blocks. num_shareable: number of
    keys that another sequence can have. registered: number of registered blocks. covered: with
    drafts, number of blocks with known content; cover_at: number of known tokens needed for one
    more. named: for each kind of groups, number of positions already decided to get keys or not.
    boundaries: numbers of blocks after which others can continue, under any retention.
    junction_tokens: tokens after which others diverge, 0: none. prompt_tokens: prompt length of the
    request. hint: the session of the request. kept_until: for each kind of window, the place after
    which retention gives no block a key.

    parts: blocks with keys by group, in order; if blocks are kept singly, all blocks. lists: block
    numbers by group, if tracked and not kept singly. skipped: by group, the position up to which
    all blocks have been freed. count: units of tokens (see sizes.py) that fit in the tables.
    states: positions of state tables, including scratch states; begun: whether they hold more than
    hits. last_state: position of the state of the previous allocation, -1 without one. copied: by
    group, the block that the next block taken is a copy of. last_slot: the first slot of the block
    that the sequence allocates last, -1 until it is computed. last_unfilled: bytes of that block
    that the sequence never fills.
    """

    __slots__ = (
        *("tokens", "base", "joined", "returned", "processed", "since", "computed", "drafts"),
        *("launches", "runs", "num_shareable", "registered", "covered", "cover_at", "named"),
        *("boundaries", "junction_tokens", "prompt_tokens", "hint", "kept_until", "parts"),
        *("lists", "skipped", "count", "states", "begun", "last_state", "copied", "_runs_in"),
        *("last_slot", "last_unfilled"),
    )

    def __init__(self, runs: KeyRuns, num_shareable: int, num_groups: int, num_kinds: int) -> None:
        self.tokens = self.base = self.joined = self.returned = 0
        self.processed = self.since = self.computed = self.drafts = 0
        self.launches: list[tuple[int, int]] = []
        self.runs, self.num_shareable = runs, num_shareable
        self.registered = self.covered = self.cover_at = 0
        self.named = [0] * num_kinds
        self.boundaries: tuple[int, ...] = ()
        self.junction_tokens = self.prompt_tokens = 0
        self.hint = NO_HINT
        self.kept_until: list[int] = []
        self.parts: list[list[Part]] = [[] for _ in range(num_groups)]
        self.lists: list[list[int]] = [[] for _ in range(num_groups)]
        self.skipped = [0] * num_groups
        self.count = self.states = 0
        self.begun = False
        self.last_state = -1
        self.copied: dict[int, Extent] = {}
        self.last_slot, self.last_unfilled = -1, 0
        self._runs_in: dict[int, KeyRuns] = {}

    def runs_in(self, units: int) -> KeyRuns:
        """The keys of blocks of `units` units."""
        if units == 1:
            return self.runs
        runs = self._runs_in.get(units)
        if runs is None:
            runs = self._runs_in[units] = self.runs.every(units)
        return runs

    def add_keys(self, first: int, count: int) -> None:
        """Append `count` consecutive keys for its next blocks."""
        self.runs = self.runs.plus(first, count)
        self._runs_in.clear()

    def block_at(self, group: int, place: int) -> Extent | None:
        """The block at a position of a table of single blocks; None: a gap."""
        parts = self.parts[group]
        index = place - parts[0][0] if parts else 0
        if 0 <= index < len(parts) and parts[index][0] == place:
            return parts[index][1]
        return next((extent for at, extent, _ in parts if at == place), None)
