"""What is known, by the runs of keys that name it: for each key the block that has held it longest.

The keys of one name (see content.py) are covered by pieces that do not overlap, in the order of
their keys. Where a sequence makes again what is known, its blocks are younger: they are found when
those before them have gone.
"""

from kvsim.memory.paged.content import LONGEST_RUN
from kvsim.memory.paged.counted.piece import Piece
from kvsim.plumbing.errors import InvariantError


class KnownContent:
    """Pieces by their keys. It cuts pieces where only a part of them is meant."""

    def __init__(self) -> None:
        self._oldest: dict[int, list[Piece]] = {}  # by name, in the order of their keys
        self._younger: dict[int, list[Piece]] = {}  # by name, in the order of their age

    def find(self, first: int, count: int, found: list[tuple[Piece, int]]) -> int:
        """How many of `count` successive keys, which begin where a piece does if anything is known,
        are known without a gap; appends the pieces, and how many blocks of each.
        """
        pieces = self._oldest.get(first // LONGEST_RUN)
        if pieces is None:
            return 0
        at, key, end = _place(pieces, first), first, first + count
        while key < end and at < len(pieces):
            piece = pieces[at]
            if piece.key != key:
                break
            found.append((piece, min(piece.num, end - key)))
            key += piece.num
            at += 1
        return min(key, end) - first

    def is_known_twice(self, first: int, count: int) -> bool:
        """Whether younger blocks hold some of these keys."""
        end = first + count
        younger = self._younger.get(first // LONGEST_RUN, ()) if self._younger else ()
        return any(piece.key < end and piece.end > first for piece in younger)

    def add(self, first: int, count: int) -> list[Piece]:
        """So many new blocks hold content with successive keys: as pieces, in order."""
        name, key, end = first // LONGEST_RUN, first, first + count
        pieces = self._oldest.setdefault(name, [])
        at, made = _place(pieces, key), []
        if at and pieces[at - 1].end > key:
            at -= 1
        while key < end:
            older = pieces[at] if at < len(pieces) else None
            if older is not None and older.key <= key:
                piece = Piece(key, min(end, older.end) - key)
                piece.is_younger = True
                self._younger.setdefault(name, []).append(piece)
            else:
                piece = Piece(key, (end if older is None else min(end, older.key)) - key)
                pieces.insert(at, piece)
            made.append(piece)
            key = piece.end
            at += 1
        return made

    def extend(self, piece: Piece, count: int) -> bool:
        """`piece` becomes longer by so many new blocks; False: they are not the only ones of their
        keys, and nothing has changed.
        """
        if piece.is_younger:
            return False
        pieces = self._oldest[piece.key // LONGEST_RUN]
        behind = _place(pieces, piece.key) + 1
        if behind < len(pieces) and pieces[behind].key < piece.end + count:
            return False
        piece.num += count
        return True

    def cut(self, piece: Piece, num: int) -> Piece:
        """After its first `num` blocks; returns the others."""
        name, rest = piece.key // LONGEST_RUN, piece.cut(num)
        if piece.is_younger:
            younger = self._younger[name]
            younger.insert(younger.index(piece) + 1, rest)
        else:
            pieces = self._oldest[name]
            pieces.insert(_place(pieces, rest.key), rest)
        return rest

    def join(self, piece: Piece, rest: Piece) -> None:
        """Take `rest`, which nobody holds, into the free piece before it in its name."""
        pieces = self._oldest[rest.key // LONGEST_RUN]
        del pieces[_place(pieces, rest.key)]
        piece.num += rest.num

    def forget(self, piece: Piece, count: int) -> None:
        """The last `count` blocks of a piece, of which nobody else holds any, lose their names."""
        name, end = piece.key // LONGEST_RUN, piece.end
        piece.num -= count
        if piece.is_younger:
            if not piece.num:
                self._drop_younger(name, piece)
            return
        if not piece.num:
            pieces = self._oldest[name]
            if len(pieces) == 1:
                del self._oldest[name]
            else:
                del pieces[_place(pieces, piece.key)]
        if self._younger:
            self._succeed(name, end - count, end)

    def _succeed(self, name: int, first: int, end: int) -> None:
        """Of the blocks that hold the keys from `first` to `end`, the oldest are found from now
        on, after those that were have gone.
        """
        for piece in self._younger.get(name, ()):
            if piece.key < end and piece.end > first:
                break
        else:
            return
        if piece.key < first:
            piece = self.cut(piece, first - piece.key)
        if piece.end > end:
            self.cut(piece, end - piece.key)
        self._drop_younger(name, piece)
        piece.is_younger = False
        pieces = self._oldest.setdefault(name, [])
        pieces.insert(_place(pieces, piece.key), piece)
        for part in (first, piece.key), (piece.end, end):
            if part[0] < part[1]:
                self._succeed(name, *part)

    def _drop_younger(self, name: int, piece: Piece) -> None:
        younger = self._younger[name]
        younger.remove(piece)
        if not younger:
            del self._younger[name]

    def check(self) -> int:
        """Raise InvariantError unless each key has one oldest block, which every younger one has
        before it; returns how many blocks can be named.
        """
        num = 0
        for name, pieces in self._oldest.items():
            end = name * LONGEST_RUN
            for piece in pieces:
                if piece.key < end or piece.num < 1 or piece.is_younger:
                    raise InvariantError(f"content of {piece.num} blocks from {piece.key} on twice")
                end = piece.end
                num += piece.num
        for name, pieces in self._younger.items():
            for piece in pieces:
                oldest: list[Piece] = []
                held = sum(
                    max(0, min(piece.end, old.end) - max(piece.key, old.key))
                    for old in self._oldest.get(name, oldest)
                )
                if held != piece.num or piece.num < 1 or not piece.is_younger:
                    raise InvariantError(f"younger content from {piece.key} on has no elder")
                num += piece.num
        return num


def _place(pieces: list[Piece], key: int) -> int:
    """Of the first piece that begins at `key` or behind it."""
    low, high = 0, len(pieces)
    while low < high:
        middle = (low + high) // 2
        if pieces[middle].key < key:
            low = middle + 1
        else:
            high = middle
    return low
