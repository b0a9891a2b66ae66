"""A batch of the server, and the parts that are decoded one at a time."""

from typing import NamedTuple

from kvsim.engine.schedulers.llama_server.slot import Slot


class BatchPiece(NamedTuple):
    """Tokens of one slot in a batch: `num` tokens from position `pos` on. last: the last of them
    samples a token.
    """

    slot: Slot
    pos: int
    num: int
    last: bool


class BatchPart(NamedTuple):
    """The part of a batch that one decode call computed. sampling: slots that get a token
    from it.
    """

    pieces: list[BatchPiece]
    sampling: list[Slot]
    num_tokens: int


def behind(pieces: list[BatchPiece], offset: int) -> list[BatchPiece]:
    """The pieces of a batch without its first `offset` tokens."""
    rest = []
    for slot, pos, num, last in pieces:
        skipped = min(offset, num)
        offset -= skipped
        if skipped < num:
            rest.append(BatchPiece(slot, pos + skipped, num - skipped, last))
    return rest


def first(pieces: list[BatchPiece], size: int) -> list[BatchPiece]:
    """The pieces of the first `size` tokens of a batch."""
    part = []
    for slot, pos, num, last in pieces:
        if not size:
            break
        some = min(num, size)
        size -= some
        part.append(BatchPiece(slot, pos, some, last and some == num))
    return part
