"""How the ledger of a radix tree's pool moves while decoders start pages and leaves are evicted."""

from typing import NamedTuple

from kvsim.memory.ledger import NOTHING, Course, Usage


class Moment(NamedTuple):
    """How many of something, the sum of the steps t they came at, and of t * (t - 1) / 2."""

    total: int = 0
    first: int = 0
    second: int = 0

    def plus(self, count: int, t: int) -> "Moment":
        """And so many more at step t."""
        return Moment(
            self.total + count, self.first + count * t, self.second + count * (t * (t - 1) // 2)
        )

    def repeated(self, count: int, t: int, size: int, times: int) -> "Moment":
        """And `count` more at each of the steps t, t + size, ..., `times` of them."""
        pairs = times * (times - 1) // 2
        squares = (times - 1) * times * (2 * times - 1) // 6
        first = times * t + size * pairs
        # sum of (t + size * i) * (t + size * i - 1)
        second = times * t * (t - 1) + size * (2 * t - 1) * pairs + size * size * squares
        return Moment(
            self.total + count * times,
            self.first + count * first,
            self.second + count * (second // 2),
        )


NEVER = Moment()


class Moves(NamedTuple):
    """When pages were taken, tokens evicted, and last pages begun with slots that stay empty."""

    pages: Moment
    evicted: Moment
    over: Moment

    def course(self, decoders: int, page_tokens: int, token_bytes: int) -> Course:
        """How the ledger moves, `decoders` filling a slot each a step. Pages of one token are taken
        as they are filled, by everybody in every step: `pages` then has the exceptions.
        """
        filled = decoders * token_bytes
        taken = filled if page_tokens == 1 else 0
        slope = Usage(filled, taken - filled, 0, 0, 0, 0, 0, 0, 0, -taken)
        if self.pages is NEVER and self.evicted is NEVER and self.over is NEVER:
            return Course(slope)
        page_bytes = page_tokens * token_bytes
        jumps, first, second = (
            _moved(pages * page_bytes, evicted * token_bytes, over * token_bytes)
            for pages, evicted, over in zip(*self, strict=True)
        )
        return Course(slope, jumps, first, second)


def _moved(taken_bytes: int, evicted_bytes: int, over_bytes: int) -> Usage:
    """What taking pages, evicting tokens and starting last pages does to the ledger."""
    if not (taken_bytes or evicted_bytes or over_bytes):
        return NOTHING
    reserved, idle = taken_bytes - over_bytes, evicted_bytes - taken_bytes
    return Usage(0, reserved, over_bytes, 0, -evicted_bytes, 0, 0, 0, 0, idle)
