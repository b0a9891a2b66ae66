"""Shared prompt contents by ids of blocks, as files of an observed run have them."""

from collections.abc import Iterator

from kvsim.request import Request, TokenRuns


class BlockIds:
    """Ids of prompts' blocks: equal ids where all tokens up to the block's end are equal."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._known: dict[tuple[int, TokenRuns], int] = {}

    def of(self, request: Request) -> list[int] | None:
        """The ids of a request's blocks, the last perhaps partial; None for a private prompt."""
        if request.prompt_runs is None:
            return None
        ids: list[int] = []
        for block in _blocks(request.prompt_runs, self._block_size):
            chain = (ids[-1] if ids else -1, block)
            ids.append(self._known.setdefault(chain, len(self._known)))
        return ids


def _blocks(runs: TokenRuns, size: int) -> Iterator[TokenRuns]:
    """The runs cut after every `size` tokens; runs that go on where one ends are one run."""
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
