"""Hash ids of prompt blocks, as stream.jsonl of an observed run has them."""

from collections.abc import Iterator

from kvsim.request import Request, TokenRuns


class BlockIds:
    """Gives prompt blocks their hash ids: two blocks get one id where all tokens up to the block's
    end are equal.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._known: dict[tuple[int, TokenRuns], int] = {}

    def of(self, request: Request) -> list[int] | None:
        """One id per block of `block_size` tokens of the prompt, the last block perhaps partial;
        None for a prompt that shares no content (prompt_runs is None).
        """
        if request.prompt_runs is None:
            return None
        ids: list[int] = []
        for block in _blocks(request.prompt_runs, self._block_size):
            chain = (ids[-1] if ids else -1, block)
            ids.append(self._known.setdefault(chain, len(self._known)))
        return ids


def _blocks(runs: TokenRuns, size: int) -> Iterator[TokenRuns]:
    """Cut (first token id, length) runs into blocks of `size` tokens. Adjacent runs within a block
    are merged.
    """
    block: list[tuple[int, int]] = []
    room = size
    for start, length in runs:
        while length:
            part = min(length, room)
            if block and sum(block[-1]) == start:
                block[-1] = (block[-1][0], block[-1][1] + part)
            else:
                block.append((start, part))
            start, length, room = start + part, length - part, room - part
            if not room:
                yield tuple(block)
                block, room = [], size
    if block:
        yield tuple(block)
