"""Blocks that lie and move together, and the queue in which those that nobody holds wait."""

from collections.abc import Iterator

NAMELESS = -1  # content that nobody can name
BLANK = -2


class Piece:
    """Successive blocks of a table that the same sequences hold, or that wait together.

    key: of what the first of them holds, those behind it counting up; or NAMELESS, or BLANK. num:
    how many there are. owners: how many sequences hold them; 0: they are free. is_younger: others,
    older ones, are found by their keys. after: what was cut off behind them while somebody held
    both. num_prompt: of free ones, how many lay in the prompt of who held them last, from the first
    on.
    """

    __slots__ = ("after", "is_younger", "key", "later", "num", "num_prompt", "owners", "sooner")

    def __init__(self, key: int, num: int) -> None:
        self.key = key
        self.num = num
        self.num_prompt = 0
        self.owners = 0
        self.is_younger = False
        self.after: Piece | None = None
        self.sooner: Piece | None = None  # who goes out just before it
        self.later: Piece | None = None

    @property
    def end(self) -> int:
        """The key behind its last one."""
        return self.key + self.num

    def cut(self, num: int) -> "Piece":
        """The first `num` blocks stay; returns the others, which wait just before them or have the
        same owners.
        """
        rest = Piece(self.key + num, self.num - num)
        self.num = num
        if self.num_prompt > num:
            rest.num_prompt, self.num_prompt = self.num_prompt - num, num
        rest.owners, rest.is_younger = self.owners, self.is_younger
        if self.owners:
            rest.after, self.after = self.after, rest
        sooner = self.sooner
        if sooner is not None:
            sooner.later = self.sooner = rest
            rest.sooner, rest.later = sooner, self
        return rest


class FreeQueue:
    """Pieces in the order in which they go out; of each its last block goes first."""

    def __init__(self) -> None:
        # One piece that never goes stands before the first and behind the last.
        self._ring = ring = Piece(BLANK, 0)
        ring.sooner = ring.later = ring

    def __iter__(self) -> Iterator[Piece]:
        piece = self.first
        while piece is not None:
            yield piece
            piece = None if piece.later is self._ring else piece.later

    @property
    def first(self) -> Piece | None:
        """Who goes next."""
        first = self._ring.later
        return None if first is self._ring else first

    @property
    def last(self) -> Piece | None:
        """Who came last."""
        last = self._ring.sooner
        return None if last is self._ring else last

    def append(self, piece: Piece) -> None:
        """`piece` comes back."""
        ring = self._ring
        last = ring.sooner
        assert last is not None
        last.later = ring.sooner = piece
        piece.sooner, piece.later = last, ring

    def remove(self, piece: Piece) -> None:
        """`piece` is taken out."""
        sooner, later = piece.sooner, piece.later
        assert sooner is not None
        assert later is not None
        sooner.later, later.sooner = later, sooner
        piece.sooner = piece.later = None
