"""What a sequence holds of a pool of counted blocks."""

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.counted.piece import Piece
from kvsim.memory.paged.table import Table
from kvsim.plumbing.errors import InvariantError


class CountedTable(Table):
    """blocks: how many a sequence holds, or held when it began to decode. parts: where the first of
    them lie, which carry keys: so many from the beginning of each piece on, in what was cut off
    behind it too.
    """

    __slots__ = ("blocks", "parts")

    def __init__(self, runs: KeyRuns, num_shareable: int) -> None:
        super().__init__(runs, num_shareable)
        self.blocks = 0
        self.parts: list[tuple[Piece, int]] = []

    def pieces(self) -> list[Piece]:
        """All blocks with keys, in order."""
        found: list[Piece] = []
        for head, num in self.parts:
            piece, count = head, num
            while True:
                found.append(piece)
                count -= piece.num
                if count <= 0:
                    break
                after = piece.after
                assert after is not None
                piece = after
            if count:
                raise InvariantError(f"{-count} blocks more than a table holds were not cut off")
        return found
