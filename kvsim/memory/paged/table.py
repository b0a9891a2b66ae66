"""What a paged allocator keeps of one sequence."""

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.extent import Extent, Part
from kvsim.memory.paged.session_hint import NO_HINT


class Table:
    """A sequence's slots, what is known of their content, and its blocks in each group of layers.

    tokens: slots it holds while it does not decode. base: slots minus the decoders' clock while it
    decodes. joined: slots it began to decode with. returned: slots of which the content was known
    then, or will be with its first step. processed: slots whose step had returned at the clock
    `since`, when it began to decode. computed: slots it had before the last step it was in, while
    it does not decode. drafts: slots asked for beyond what is valid when the last step has
    returned. scheduled: the step in which its last chunk was, or the one before it stopped
    decoding.

    runs: content keys of its leading blocks, or of what part of a block has one. num_shareable: how
    many of them another sequence can have. registered: how many blocks carry theirs. covered: where
    tokens are drafted ahead, how many hold known content; cover_at: how many tokens must be known
    for one more. named: of each kind of groups, of how many positions it is decided whether they
    get keys. boundaries: after so many blocks others can continue from it, whatever the retention.
    junction_tokens: after so many others part from it, 0: nowhere. prompt_tokens: of its request.
    hint: what is known of its session. kept_until: of each kind of window, the place behind which
    retention leaves no block to be named.

    parts: by group, its blocks with keys, in order; where blocks are kept one by one, all. lists:
    by group, the numbers of the blocks, if they are tracked and not kept one by one. skipped: by
    group, the position up to which all have been given back. count: units of tokens (see sizes.py)
    that the tables have room for; states: positions of tables of states, scratch ones included;
    begun: these hold more than hits. last_state: position of the state of the allocation before, -1
    without one. copied: by group, the block whose content, or whose keys, the next block taken is a
    copy of.
    """

    __slots__ = (
        *("tokens", "base", "joined", "returned", "processed", "since", "computed", "drafts"),
        *("scheduled", "runs", "num_shareable", "registered", "covered", "cover_at", "named"),
        *("boundaries", "junction_tokens", "prompt_tokens", "hint", "kept_until", "parts"),
        *("lists", "skipped", "count", "states", "begun", "last_state", "copied", "_runs_in"),
    )

    def __init__(self, runs: KeyRuns, num_shareable: int, num_groups: int, num_kinds: int) -> None:
        self.tokens = self.base = self.joined = self.returned = 0
        self.processed = self.since = self.computed = self.drafts = self.scheduled = 0
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
        self._runs_in: dict[int, KeyRuns] = {}

    def runs_in(self, units: int) -> KeyRuns:
        """The keys of blocks of so many units."""
        if units == 1:
            return self.runs
        runs = self._runs_in.get(units)
        if runs is None:
            runs = self._runs_in[units] = self.runs.every(units)
        return runs

    def add_keys(self, first: int, count: int) -> None:
        """Its next blocks get consecutive keys."""
        self.runs = self.runs.plus(first, count)
        self._runs_in.clear()

    def block_at(self, group: int, place: int) -> Extent | None:
        """The block at a position of a table whose blocks are kept one by one; None: a gap."""
        parts = self.parts[group]
        index = place - parts[0][0] if parts else 0
        if 0 <= index < len(parts) and parts[index][0] == place:
            return parts[index][1]
        return next((extent for at, extent, _ in parts if at == place), None)
