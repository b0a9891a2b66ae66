"""How the ledger of a radix tree's pool moves while decoders start pages and leaves are evicted."""

from kvsim.memory.ledger import NOTHING, Course, Jumps, Usage, course_of


class PageMoves:
    """What jumps in one `advance`: pages taken, tokens evicted, and slots of last pages that stay
    empty.
    """

    def __init__(self) -> None:
        self.pages = Jumps()
        self.evicted = Jumps()
        self.over = Jumps()

    def course(self, decoders: int, page_tokens: int, token_bytes: int) -> Course:
        """How the ledger moves, `decoders` filling a slot each a step. Pages of one token are taken
        as they are filled, by every decoder in every step: `pages` then has the exceptions.
        """
        filled = decoders * token_bytes
        taken = filled if page_tokens == 1 else 0
        slope = Usage(filled, taken - filled, 0, 0, 0, 0, 0, 0, 0, -taken)
        pages, evicted, over = self.pages, self.evicted, self.over
        if not (pages.moved or evicted.moved or over.moved):
            return course_of(slope, NOTHING, NOTHING, NOTHING)
        size = page_tokens * token_bytes
        return course_of(
            slope,
            _ledger(pages.total * size, evicted.total * token_bytes, over.total * token_bytes),
            _ledger(pages.first * size, evicted.first * token_bytes, over.first * token_bytes),
            _ledger(pages.second * size, evicted.second * token_bytes, over.second * token_bytes),
        )


def _ledger(pages: int, evicted: int, over: int) -> Usage:
    """What bytes of pages taken, evicted, and never to be filled do to the ledger."""
    return Usage(0, pages - over, over, 0, -evicted, 0, 0, 0, 0, evicted - pages)
