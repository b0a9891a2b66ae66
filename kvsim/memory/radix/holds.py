"""The part of the tree that each sequence locks, and the content that it inserts.

Token content is created on first use: a request without token ids gets unique ids.
"""

from collections import Counter
from collections.abc import Collection

from kvsim.memory.prefix_room import Known
from kvsim.memory.radix.content import Content
from kvsim.memory.radix.hicache.backup import Backup
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.second_pool import Places
from kvsim.memory.radix.tree import NO_MATCH, Match, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence

PRIVATE = -(1 << 60)  # ids from here down are unique to one sequence


class Slots:
    """The memory of one sequence in all pools.

    content: all tokens that the sequence will ever have. node: end of its locked path in the tree,
    None without one. protected: tokens of that path, in whole pages; slots beyond are unshared.
    tokens: valid slots, and granted: slots in whole pages, while it does not decode. over: slots of
    its last page, if allocated, that it will never fill. agreed: tokens that the tree agreed with
    when the sequence was matched. chunks: number of chunks of its prompt computed so far. joined:
    slots it had when it began to decode, -1 before.

    For a second pool. mark, holds_part: where its lock there ends, and whether it still has the
    lock. cursor: number of leading tokens of which it freed the window slots. branch: token count
    at which paths diverge and the second pool lacks content; 0 for none. states: slots of the state
    pool outside the tree. tracked: token count of its checkpointed state; None without one.
    untracked: token counts at which a state should have been checkpointed, but was not.

    For host memory. filed: number of its first tokens that it has inserted since its admission.
    anchor: where its content ends in either memory, at the last lookup; host_hit: tokens there that
    are not on the device. promised, loaded: at its admission, tokens found on the host, and tokens
    loaded.
    """

    __slots__ = (
        *("agreed", "anchor", "branch", "chunks", "content", "cursor", "filed", "granted"),
        *("holds_part", "host_hit", "joined", "loaded", "mark", "node", "over", "promised"),
        *("protected", "states", "tokens", "tracked", "untracked"),
    )

    def __init__(self, content: Content) -> None:
        self.content = content
        self.node: Node | None = None
        self.protected = 0
        self.tokens = 0
        self.granted = 0
        self.over = 0
        self.anchor: Node | None = None
        self.filed = self.host_hit = self.promised = self.loaded = 0
        self.reset()

    def reset(self) -> None:
        """Forget all matches of a sequence that waits to be matched again; its content stays."""
        self.mark = 0
        self.holds_part = False
        self.agreed = 0
        self.chunks = 0
        self.joined = -1
        self.cursor = 0
        self.branch = 0
        self.states = 0
        self.tracked: int | None = None
        self.untracked: list[int] = []

    @property
    def own_from(self) -> int:
        """Index of the first token with an unshared window slot."""
        return max(self.protected, self.cursor)


def slots_of(seq: Sequence) -> Slots:
    """The slots of a matched sequence."""
    slots: Slots = seq.memory
    return slots


class Holds:
    """Locks that sequences hold on the tree, and their insertions. caching: whether there is a
    tree. grid: token counts at which paths diverge are rounded down to a multiple of this. backup:
    notified of insertions. protected: locked tokens, counted once for each sequence. pinned:
    sequences with locked hits that are not admitted yet.
    """

    def __init__(self, tree: RadixTree, backup: Backup, *, grid: int, caching: bool) -> None:
        self._tree = tree
        self._backup = backup
        self._grid = grid
        self._caching = caching
        self._private = PRIVATE
        self.protected = 0
        self.pinned: dict[Sequence, Slots] = {}

    def slots(self, seq: Sequence) -> Slots:
        """The record (`Slots`) of `seq`, created on the first call."""
        if seq.memory is None:
            prompt, output = seq.prompt_runs, seq.output_start
            if prompt is None:
                prompt = ((self._private_ids(seq.prompt_tokens), seq.prompt_tokens),)
            if output is None:
                output = self._private_ids(seq.output_tokens)
            seq.memory = Slots(Content((*prompt, (output, seq.output_tokens))))
        slots: Slots = seq.memory
        return slots

    def _private_ids(self, count: int) -> int:
        self._private -= count + 1  # one between two, so that they make two runs
        return self._private

    # --- what waiting sequences hit --------------------------------------------------------------

    def hit(self, seq: Sequence) -> Match:
        """The cached prefix of a waiting `seq`; if `seq` is pinned, the prefix that it locked."""
        if seq in self.pinned:
            return Match(self.pinned[seq].protected, 0)
        if not self._caching:
            return NO_MATCH
        return self._tree.find(self.slots(seq).content, seq.num_tokens - 1)

    def look_up(self, seq: Sequence) -> Known:
        """Match the cached prefix of all tokens of `seq`, and mark it as used now."""
        if not self._caching:
            return Known(0, 0)
        slots = self.slots(seq)
        slots.anchor, tokens, _ = self._tree.look_up(slots.content, seq.num_tokens)
        node = slots.anchor
        return Known(tokens, self._tree.on_device(node, tokens)[1])

    def pin(self, seq: Sequence) -> int:
        """Lock the hits of a waiting `seq` on the device; returns their number of tokens."""
        slots = self.pinned[seq] = self.slots(seq)
        slots.reset()
        if self._caching:
            node, tokens, agreed = self._tree.look_up(slots.content, seq.num_tokens - 1)
            slots.agreed = agreed
            branch = agreed - agreed % self._grid
            slots.branch = branch if branch > tokens else 0
            slots.anchor = node
            slots.node, slots.protected = self._tree.on_device(node, tokens)
            slots.promised = slots.host_hit = tokens - slots.protected
            slots.loaded = 0
            self._hold(slots, slots.node)
            self.protected += slots.protected
        return slots.protected

    def extend(self, slots: Slots, node: Node, tokens: int) -> None:
        """Extend a sequence's lock by `tokens` tokens, down to `node`."""
        self._move(slots, node, slots.protected + tokens)

    def _move(self, slots: Slots, node: Node, whole: int) -> None:
        """Move a sequence's lock to `node`, where its first `whole` tokens end."""
        before = slots.node
        assert before is not None
        self.let_go_of_part(slots)
        self._tree.unlock(before)
        self._hold(slots, node)
        self.protected += whole - slots.protected
        slots.node, slots.protected = node, whole

    def _hold(self, slots: Slots, node: Node) -> None:
        self._tree.lock(node)
        slots.mark, slots.holds_part = self._tree.second.lock(node), True

    def let_go_of_part(self, slots: Slots) -> None:
        """Release a sequence's lock on the second pool; its lock on KV stays."""
        if slots.holds_part and slots.node is not None:
            self._tree.second.unlock(slots.node, slots.mark)
        slots.holds_part = False

    def let_go(self, slots: Slots) -> None:
        """Release the locks of a sequence."""
        if slots.node is not None:
            self.let_go_of_part(slots)
            self._tree.unlock(slots.node)
            self.protected -= slots.protected
            slots.node, slots.protected = None, 0

    def held(self, seq: Sequence) -> Slots:
        """The locked slots of a waiting sequence if it is pinned; otherwise slots without a
        lock.
        """
        slots = self.pinned.pop(seq, None)
        if slots is None:
            slots = self.slots(seq)
            slots.node = self._tree.root if self._caching else None
        return slots

    def only_these(self, kept: Collection[Slots]) -> int:
        """Number of slots that only the sequences in `kept` hold, each counted once."""
        own = 0
        locks: Counter[Node] = Counter()
        for slots in kept:
            own += slots.tokens - slots.protected
            node = slots.node
            while node is not None and node.parent is not None:
                locks[node] += 1
                node = node.parent
        return own + sum(node.tokens for node, count in locks.items() if count == node.locks)

    # --- what running sequences file -------------------------------------------------------------

    def file(self, slots: Slots, places: Places, prompt: int) -> int:
        """Insert the first `places.end` tokens (whole pages) of a running sequence into the tree,
        and lock them. prompt: prompt tokens among these. Returns the number of previously unshared
        tokens that the tree had already.
        """
        tree, before, whole = self._tree, slots.protected, places.end
        if whole < before:
            raise InvariantError(f"a sequence holds {before} tokens of the tree, not {whole}")
        node, known = tree.insert(slots.content, whole, places)
        self._backup.inserted(node, whole, slots.filed)
        slots.filed = max(slots.filed, whole)
        if prompt < whole and tree.second.cuts_prompts:
            tree.insert(slots.content, prompt)  # outputs can then be evicted without the prompt
        self._move(slots, node, whole)
        return known - before
