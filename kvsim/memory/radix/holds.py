"""The part of the tree that each sequence locks, and the content that it inserts.

Content is made on first use: tokens of a request without ids of their own get unique ids.
"""

from collections import Counter
from collections.abc import Collection

from kvsim.memory.radix.node import Content, Node
from kvsim.memory.radix.tree import NO_MATCH, Match, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence

PRIVATE = -(1 << 60)  # ids from here down are unique to one sequence


class Slots:
    """The slots of one sequence.

    content: all tokens that it will ever have. node: end of its locked path in the tree, None
    without one. protected: tokens of that path, in whole pages; slots beyond are its own.
    tokens: valid slots, and granted: slots in whole pages, while it does not decode. over: slots of
    its last page, if allocated, that it will never fill.
    """

    __slots__ = ("content", "granted", "node", "over", "protected", "tokens")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.node: Node | None = None
        self.protected = 0
        self.tokens = 0
        self.granted = 0
        self.over = 0


class Holds:
    """caching: whether there is a tree. protected: locked tokens, counted for each sequence.
    pinned: sequences that lock their hits and are not admitted yet.
    """

    def __init__(self, tree: RadixTree, *, caching: bool) -> None:
        self._tree = tree
        self._caching = caching
        self._private = PRIVATE
        self.protected = 0
        self.pinned: dict[Sequence, Slots] = {}

    def slots(self, seq: Sequence) -> Slots:
        """The slots of `seq`, made on the first call."""
        if seq.memory is None:
            prompt, output = seq.prompt_runs, seq.output_start
            if prompt is None:
                prompt = ((self._private_ids(seq.prompt_tokens), seq.prompt_tokens),)
            if output is None:
                output = self._private_ids(seq.output_tokens)
            seq.memory = self._new_slots(Content((*prompt, (output, seq.output_tokens))))
        slots: Slots = seq.memory
        return slots

    def _new_slots(self, content: Content) -> Slots:
        """The slots of a sequence with this content."""
        return Slots(content)

    def _private_ids(self, count: int) -> int:
        self._private -= count + 1  # one between two, so that they make two runs
        return self._private

    # --- what waiting sequences hit --------------------------------------------------------------

    def hit(self, seq: Sequence) -> Match:
        """The hits of a waiting `seq`; a pinned one keeps those of its pin."""
        if seq in self.pinned:
            return Match(self.pinned[seq].protected, 0)
        if not self._caching:
            return NO_MATCH
        return self._tree.find(self.slots(seq).content, seq.num_tokens - 1)

    def look_up(self, seq: Sequence) -> int:
        """The cached prefix of all tokens of `seq`, whose last use is set to now."""
        if not self._caching:
            return 0
        return self._tree.match(self.slots(seq).content, seq.num_tokens)[1]

    def _find(self, slots: Slots, limit: int) -> tuple[Node, int]:
        """The last node that a sequence may lock of its hits in its first `limit` tokens, and the
        tokens up to there.
        """
        return self._tree.match(slots.content, limit)

    def extend(self, slots: Slots, node: Node, tokens: int) -> None:
        """A sequence locks `tokens` tokens more, down to `node`."""
        assert slots.node is not None
        self._tree.lock(node)
        self._tree.unlock(slots.node)
        self.protected += tokens
        slots.node, slots.protected = node, slots.protected + tokens

    def pin(self, seq: Sequence) -> int:
        """Lock the hits of a waiting `seq`; returns their number of tokens."""
        slots = self.pinned[seq] = self.slots(seq)
        if self._caching:
            slots.node, slots.protected = self._find(slots, seq.num_tokens - 1)
            self._tree.lock(slots.node)
            self.protected += slots.protected
        return slots.protected

    def let_go(self, slots: Slots) -> None:
        """Release the locks of a sequence."""
        if slots.node is not None:
            self._tree.unlock(slots.node)
            self.protected -= slots.protected
            slots.node, slots.protected = None, 0

    def held(self, seq: Sequence) -> Slots:
        """The locked slots of a waiting sequence if it is pinned; else none."""
        slots = self.pinned.pop(seq, None)
        if slots is None:
            slots = self.slots(seq)
            slots.node = self._tree.root if self._caching else None
        return slots

    def only_these(self, kept: Collection[Slots]) -> int:
        """Slots that only these sequences hold, each counted once."""
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

    def file(self, slots: Slots, whole: int, prompt: int) -> tuple[int, int]:
        """The tree takes over the first `whole` tokens of a running sequence (whole pages; `prompt`
        of them of its prompt), which locks them. Returns how many were the sequence's own so far,
        and how many of these the tree had already.
        """
        tree, before = self._tree, slots.protected
        assert slots.node is not None
        if whole < before:
            raise InvariantError(f"a sequence holds {before} tokens of the tree, not {whole}")
        node, known = tree.insert(slots.content, whole)
        self._inserted(slots, node, whole)
        if prompt < whole:  # outputs can then be forgotten without the prompt
            tree.insert(slots.content, prompt)
        tree.unlock(slots.node)
        tree.lock(node)
        self.protected += whole - before
        slots.node, slots.protected = node, whole
        return whole - before, known - before

    def _inserted(self, slots: Slots, node: Node, tokens: int) -> None:
        """A sequence has inserted its first `tokens` tokens, which end in `node`."""
