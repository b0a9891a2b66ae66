"""How the ledger of a radix tree's pool moves while decoders start pages and leaves are evicted."""

from collections.abc import Sequence
from typing import Final

from kvsim.memory.ledger import Course, Jumps, Usage

# The quantities that jump: pages taken, tokens evicted, and slots of last pages that stay empty.
PAGES: Final = 0
EVICTED: Final = 1
OVER: Final = 2
NUM_QUANTITIES: Final = 3


def course_of_pages(jumps: Jumps, decoders: int, page_tokens: int, token_bytes: int) -> Course:
    """How the ledger moves, `decoders` filling a slot each a step. Pages of one token are taken as
    they are filled, by every decoder in every step: `jumps` then has the exceptions.
    """
    filled = decoders * token_bytes
    taken = filled if page_tokens == 1 else 0
    slope = Usage(filled, taken - filled, 0, 0, 0, 0, 0, 0, 0, -taken)

    def ledger(gains: Sequence[int]) -> Usage:
        pages = gains[PAGES] * page_tokens * token_bytes
        evicted, over = gains[EVICTED] * token_bytes, gains[OVER] * token_bytes
        return Usage(0, pages - over, over, 0, -evicted, 0, 0, 0, 0, evicted - pages)

    return jumps.course(slope, ledger)
