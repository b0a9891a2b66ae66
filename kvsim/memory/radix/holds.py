"""Which part of the tree each sequence locks, and what it files there.

Content is made when it is first asked for: the tokens of a request that name no content of their
own get ids that nobody else can name.
"""

from collections import Counter
from collections.abc import Collection

from kvsim.memory.radix.content import Content
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.tree import NO_MATCH, Match, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence

PRIVATE = -(1 << 60)  # ids from here down are content that nobody else can name


class Slots:
    """What the allocator keeps of one sequence.

    content: all the tokens it will ever have. node: where in the tree its content ends; it
    locks that path. None: it locks nothing. protected: tokens of that path, in whole pages; what
    it holds beyond them is its own.
    tokens: valid slots, and granted: slots in whole pages, while it does not decode.
    over: slots of its last page, if it has it, that it will never fill.
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
    """caching: there is a tree to hold anything in. protected: tokens locked, counted for each
    sequence. pinned: sequences that lock what they hit and are not admitted yet.
    """

    def __init__(self, tree: RadixTree, *, caching: bool) -> None:
        self._tree = tree
        self._caching = caching
        self._private = PRIVATE
        self.protected = 0
        self.pinned: dict[Sequence, Slots] = {}

    def slots(self, seq: Sequence) -> Slots:
        """What is kept of `seq`, made when it is first asked for."""
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
        """What is kept of a sequence that has this content."""
        return Slots(content)

    def _private_ids(self, count: int) -> int:
        self._private -= count + 1  # one between two, so that they make two runs
        return self._private

    # --- what waiting sequences hit --------------------------------------------------------------

    def hit(self, seq: Sequence) -> Match:
        """What the tree has for a waiting `seq`; a pinned one keeps what it found then."""
        if seq in self.pinned:
            return Match(self.pinned[seq].protected, 0)
        if not self._caching:
            return NO_MATCH
        return self._tree.find(self.slots(seq).content, seq.num_tokens - 1)

    def look_up(self, seq: Sequence) -> int:
        """Tokens of all that `seq` has which the tree knows; they count as used now."""
        if not self._caching:
            return 0
        return self._tree.match(self.slots(seq).content, seq.num_tokens)[1]

    def _find(self, slots: Slots, limit: int) -> tuple[Node, int]:
        """The node that a sequence may lock of what it hits in its first `limit` tokens, and the
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
        """Lock what a waiting `seq` hits; returns how many tokens that are."""
        slots = self.pinned[seq] = self.slots(seq)
        if self._caching:
            slots.node, slots.protected = self._find(slots, seq.num_tokens - 1)
            self._tree.lock(slots.node)
            self.protected += slots.protected
        return slots.protected

    def let_go(self, slots: Slots) -> None:
        """A sequence locks nothing in the tree any more."""
        if slots.node is not None:
            self._tree.unlock(slots.node)
            self.protected -= slots.protected
            slots.node, slots.protected = None, 0

    def held(self, seq: Sequence) -> Slots:
        """What a sequence that waits has locked, if it is pinned; nothing if it is not."""
        slots = self.pinned.pop(seq, None)
        if slots is None:
            slots = self.slots(seq)
            slots.node = self._tree.root if self._caching else None
        return slots

    def only_these(self, kept: Collection[Slots]) -> int:
        """Slots of these sequences, each counted once, that no other sequence holds."""
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
        """The tree takes over the first `whole` tokens of a running sequence (whole pages, of its
        prompt `prompt`), which locks them. Returns how many were the sequence's own till now, and
        of these how many the tree knew already.
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
