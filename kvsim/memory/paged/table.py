"""The block tables of one sequence in a paged allocator."""

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.extent import Extent, Part
from kvsim.memory.paged.session_hint import NO_HINT


class Table:
    """The slots of a sequence, their known content, and its blocks in each group of layers.

    tokens: slots while the sequence does not decode. base: slots minus the decoders' clock while it
    decodes. joined: slots when it began to decode. returned: slots with content known then, or with
    its first step. since: clock at which it began to decode. processed: slots of steps that had
    returned at `since`. computed: slots before its last step, while it does not decode. drafts:
    slots allocated beyond those valid when the last step has returned. launches: its
    last steps that may be in flight, oldest first, each with the slots before it; of the steps of a
    decoder, the last one.

    runs: content keys of its leading blocks, or of the units of blocks. num_shareable: number of
    keys that another sequence can have. registered: number of registered blocks. covered: with
    drafts, number of blocks with known content; cover_at: number of known tokens needed for one
    more. named: for each kind of groups, number of positions already decided to get keys or not.
    boundaries: numbers of blocks after which others can continue, under any retention.
    junction_tokens: tokens after which others diverge, 0: none. prompt_tokens: prompt length of the
    request. hint: the session of the request. kept_until: for each kind of window, the place behind
    which retention gives no block a key.

    parts: blocks with keys by group, in order; if blocks are kept singly, all blocks. lists: block
    numbers by group, if tracked and not kept singly. skipped: by group, the position up to which
    all blocks have been freed. count: units of tokens (see sizes.py) that fit in the tables.
    states: positions of state tables, including scratch states; begun: whether they hold more than
    hits. last_state: position of the state of the previous allocation, -1 without one. copied: by
    group, the block that the next block taken is a copy of. last_slot: the first slot of the block
    that the sequence takes last, -1 until it is asked for; last_unfilled: bytes of that block that
    the sequence never fills.
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
