"""What the allocator keeps of one sequence in several groups of layers."""

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.table import KeyedTable


class GroupTable(KeyedTable):
    """What the allocator keeps of one sequence.

    lists: each group's blocks, from position `skipped` of its table on, null ones among those of a
    state. count: units of tokens (see sizes.py) that the tables have room for; states: positions of
    tables of states, scratch ones included; named: of each kind of groups, of how many positions it
    is decided whether they get keys; begun: these hold more than hits. drafts: slots asked
    for beyond what is valid when the last step has returned. processed: slots whose step had
    returned at the clock `since`, when it began to decode. boundaries: after so many blocks others
    can continue from it, whatever the retention. junction_tokens: after so many others part from
    it, 0: nowhere. prompt_tokens: of its request. scheduled: the step in which its last chunk was,
    or the one before it stopped decoding.
    last_state: position of the state of the allocation before, -1 without one.
    computed: slots it had before the last step it was in, while it does not decode.
    copied: by group, the block whose content, or whose keys, the next block taken is a copy of.
    """

    __slots__ = (
        "begun",
        "boundaries",
        "computed",
        "copied",
        "count",
        "drafts",
        "junction_tokens",
        "last_state",
        "lists",
        "named",
        "processed",
        "prompt_tokens",
        "scheduled",
        "since",
        "skipped",
        "states",
    )

    def __init__(self, runs: KeyRuns, num_shareable: int, num_groups: int, num_kinds: int) -> None:
        super().__init__(runs, num_shareable)
        self.lists: list[list[int]] = [[] for _ in range(num_groups)]
        self.skipped = [0] * num_groups
        self.named = [0] * num_kinds
        self.boundaries: tuple[int, ...] = ()
        self.junction_tokens = self.prompt_tokens = 0
        self.copied: dict[int, int] = {}
        self.begun = False
        self.count = self.states = 0
        self.last_state = -1
        self.computed = self.drafts = 0
        self.processed = self.scheduled = 0
        self.since = 0
