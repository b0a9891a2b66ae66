"""The pool of blocks, counted: as many are taken, kept and forgotten as of `BlockPool`, in the same
order, but no block has an id.

What decides is how many free blocks hold nothing, in which order the others go, and what these
hold. So the free queue is a number of blank blocks in front, and behind it pieces: blocks that came
back together, whose content, if somebody can name it, has successive keys. Nothing costs more than
the pieces it touches, however many blocks they are.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.counted.known import KnownContent
from kvsim.memory.paged.counted.piece import BLANK, NAMELESS, FreeQueue, Piece
from kvsim.memory.paged.counted.table import CountedTable
from kvsim.plumbing.errors import InvariantError


class Hits(NamedTuple):
    """Leading blocks of a sequence that are known: so many in all, and of each piece."""

    num_blocks: int
    parts: list[tuple[Piece, int]]


NO_HITS = Hits(0, [])


class CountedPool:
    """So many blocks that sequences can have. See `BlockPool` for the order of the free queue.

    num_shared: owners beyond the first, over all blocks. num_outputs: of the cached blocks, those
    that do not lie in the prompt of who held them last. version: changes whenever `find` could
    answer differently.
    """

    def __init__(self, num_blocks: int, *, blank_first: bool) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.num_cached_free = 0
        self.num_outputs = 0
        self.num_shared = 0
        self.version = 0
        self._blank_first = blank_first
        self._front = num_blocks  # blank blocks before all others
        self._back = FreeQueue()
        self._known = KnownContent()

    # --- the free queue ------------------------------------------------------------------------

    def take(self, count: int) -> int:
        """`count` <= num_free blocks leave the front of the queue, what they held is forgotten.
        Returns how many held something.
        """
        self.num_free -= count
        if count <= self._front:
            self._front -= count
            return 0
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        count -= self._front
        self._front = 0
        evicted = 0
        while count:
            piece = self._back.first
            assert piece is not None
            gone = min(piece.num, count)
            if piece.key != BLANK:
                evicted += gone
                left = max(piece.num - gone, piece.num_prompt)
                self.num_outputs -= piece.num - left
                piece.num_prompt = min(piece.num_prompt, piece.num - gone)
            if gone == piece.num:
                self._back.remove(piece)
            if piece.key < 0:
                piece.num -= gone
            else:
                self._known.forget(piece, gone)
                self.version += 1
            count -= gone
        self.num_cached_free -= evicted
        return evicted

    def give_back(
        self, table: CountedTable, num_known: int, num_wanted: int, num_prompt: int
    ) -> int:
        """A sequence returns its blocks, of which the first `num_known` hold known content, those
        with keys among them; behind the first `num_wanted` nobody will ever look for it, and behind
        the first `num_prompt` lies no prompt of its own. Returns how many stay with others, who
        hold them too.
        """
        pieces = table.pieces() if table.parts else []
        num_named = 0
        for piece in pieces:
            num_named += piece.num
        if num_known < num_named:
            raise InvariantError(f"{num_named} blocks have keys, of {num_known} whose content is")
        while num_named > num_wanted:
            piece = pieces.pop()
            num_named -= piece.num
            self._known.forget(piece, piece.num)
        self._add_blank(table.blocks - num_known)
        nameless_prompt = min(num_known, num_prompt) - num_named
        self._add_nameless(NAMELESS, num_known - num_named, max(nameless_prompt, 0))
        shared = 0
        if num_named:
            end = num_named
            for piece in reversed(pieces):
                end -= piece.num
                if piece.owners > 1:
                    piece.owners -= 1
                    shared += piece.num
                else:
                    self._add_named(piece, max(num_prompt - end, 0))
            self.num_shared -= shared
            self.num_free += num_named - shared
            self.version += 1
        self.num_cached_free += num_known - shared
        return shared

    def _add_blank(self, count: int) -> None:
        if self._blank_first:
            self._front += count
            self.num_free += count
        else:
            self._add_nameless(BLANK, count, count)

    def _add_nameless(self, key: int, count: int, num_prompt: int) -> None:
        if not count:
            return
        self.num_free += count
        self.num_outputs += count - num_prompt
        last = self._back.last
        if last is not None and last.key == key:
            # Of a piece the last blocks go first: outputs, and then a prompt.
            if num_prompt == count:
                last.num += count
                last.num_prompt += count
                return
            if not last.num_prompt:
                last.num += count
                last.num_prompt = num_prompt
                return
        piece = Piece(key, count)
        piece.num_prompt = num_prompt
        self._back.append(piece)

    def _add_named(self, piece: Piece, num_prompt: int) -> None:
        """The last owner gives `piece` up; what lies behind it in its run may have come before."""
        piece.owners = 0
        piece.after = None
        piece.num_prompt = min(num_prompt, piece.num)
        self.num_outputs += piece.num - piece.num_prompt
        last = self._back.last
        if last is not None and last.key == piece.end and not (last.is_younger or piece.is_younger):
            whole = piece.num_prompt == piece.num
            if whole or not last.num_prompt:
                self._back.remove(last)
                piece.num_prompt += last.num_prompt
                self._known.join(piece, last)
        self._back.append(piece)

    # --- content -------------------------------------------------------------------------------

    def find(self, runs: KeyRuns, most: int) -> Hits:
        """The oldest blocks that hold the first keys, at most `most`, up to one that none holds."""
        num_blocks, parts = 0, list[tuple[Piece, int]]()
        for first, count in runs.between(0, most):
            known = self._known.find(first, count, parts)
            num_blocks += known
            if known < count:
                break
        return Hits(num_blocks, parts) if num_blocks else NO_HITS

    def num_free_of(self, hits: Hits) -> int:
        """How many of these blocks wait in the free queue."""
        free = 0
        for piece, num in hits.parts:
            if not piece.owners:
                free += num
        return free

    def has_duplicate_free(self, hits: Hits) -> bool:
        """Whether some of these blocks are free while others, younger ones, hold the same."""
        for piece, num in hits.parts:
            if not piece.owners and self._known.is_known_twice(piece.key, num):
                return True
        return False

    def share(self, table: CountedTable, hits: Hits) -> int:
        """An empty table takes its hits over; free ones leave the queue. Returns how many of these
        blocks others hold as well.
        """
        in_use = 0
        for piece, num in hits.parts:
            if piece.num > num:
                self._known.cut(piece, num)
                self.version += 1
            if piece.owners:
                in_use += num
            else:
                self._back.remove(piece)
                self.num_free -= num
                self.num_cached_free -= num
                self.num_outputs -= num - piece.num_prompt
            piece.owners += 1
            table.parts.append((piece, num))
        self.num_shared += in_use
        return in_use

    def register(self, table: CountedTable, first: int, count: int) -> None:
        """The next blocks of `table` hold content with successive keys from now on."""
        self.version += 1
        if table.parts:
            last, num = table.parts[-1]
            alone = last.owners == 1 and last.after is None
            if alone and last.end == first and self._known.extend(last, count):
                table.parts[-1] = last, num + count
                return
        for piece in self._known.add(first, count):
            piece.owners = 1
            table.parts.append((piece, piece.num))

    def num_leading_shared(self, table: CountedTable) -> int:
        """How many blocks of a table, up to the first without, have several owners."""
        num = 0
        for piece in table.pieces():
            if piece.owners == 1:
                break
            num += piece.num
        return num

    def free_queue(self) -> list[int]:
        """What the free blocks hold, in the order in which they go out: keys, NAMELESS or BLANK."""
        keys = [BLANK] * self._front
        for piece in self._back:
            rising = range(piece.key, piece.end) if piece.key >= 0 else [piece.key] * piece.num
            keys.extend(reversed(rising))
        return keys

    def check(self, tables: Iterable[CountedTable], held: int) -> None:
        """Raise InvariantError unless `held` blocks, as tables count them, and the free ones are
        all there are, and all content is somebody's or waits.
        """
        owners: dict[Piece, int] = {}
        for table in tables:
            for piece in table.pieces():
                owners[piece] = owners.get(piece, 0) + 1
        wrong = [piece.owners for piece, count in owners.items() if piece.owners != count]
        shared = sum((count - 1) * piece.num for piece, count in owners.items())
        if wrong or shared != self.num_shared:
            raise InvariantError(f"{shared} blocks shared, counted {self.num_shared}: {wrong}")
        cached = sum(piece.num for piece in self._back if piece.key != BLANK)
        free = self._front + sum(piece.num for piece in self._back)
        if free != self.num_free or cached != self.num_cached_free:
            raise InvariantError(f"{free} free blocks, {cached} cached, miscounted")
        parted = [piece for piece in self._back if piece.key != BLANK]
        outputs = sum(piece.num - piece.num_prompt for piece in parted)
        if outputs != self.num_outputs or any(p.num < p.num_prompt for p in parted):
            raise InvariantError(f"{outputs} outputs cached, counted {self.num_outputs}")
        if held - shared + free != self.num_blocks:
            raise InvariantError(f"{held - shared} held + {free} free of {self.num_blocks} blocks")
        named = [piece for piece in self._back if piece.key >= 0]
        if any(piece.owners for piece in named) or any(map(owners.__contains__, named)):
            raise InvariantError("a piece is held and free")
        if self._known.check() != sum(piece.num for piece in (*named, *owners)):
            raise InvariantError("what is known is not what is held or waits")
