"""What the radix allocator keeps of one sequence."""

from kvsim.memory.radix.content import Content
from kvsim.memory.radix.node import Node


class Slots:
    """content: all the tokens it will ever have. node: where in the tree its content ends; it
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
