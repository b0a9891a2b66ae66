"""Beam search on shared blocks: forks and prunes within one request, block by block.

As in vLLM v0 and the PagedAttention paper (Kwon et al., SOSP 2023, section 4.4). In every step each
beam goes on from one of the beams before it: a beam with several children is forked (its blocks get
more holders), one without is pruned (its blocks lose a holder, and are free without any). Then all
write a token: into a new block where the last one is full, in place where a beam alone holds it,
else into a copy. So a step copies (children - 1) blocks per parent whose last block is partial.

Which beam goes on from which is for the caller to say: `parents = range(width)` in every step is
parallel sampling.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from kvsim.plumbing.units import ceil_div


class BeamFamily:
    """The beams of one request. It begins as one beam that holds the prompt.

    copied_blocks: copies so far. block_steps, logical_block_steps: sums over the steps so far of
    blocks held, and of those that beams would hold without sharing.
    """

    def __init__(self, prompt_tokens: int, block_size: int) -> None:
        self.block_size = block_size
        self.tokens = prompt_tokens
        self.copied_blocks = 0
        self.block_steps = 0
        self.logical_block_steps = 0
        self._names = count()
        self._tables = [[next(self._names) for _ in range(ceil_div(prompt_tokens, block_size))]]

    @property
    def physical_blocks(self) -> int:
        """Distinct blocks held now."""
        return len({block for table in self._tables for block in table})

    @property
    def logical_blocks(self) -> int:
        """Blocks in all tables."""
        return sum(map(len, self._tables))

    @property
    def savings(self) -> float:
        """1 - physical / logical blocks over the steps so far; 0 before the first."""
        logical = self.logical_block_steps
        return 1 - self.block_steps / logical if logical else 0.0

    def step(self, parents: Sequence[int]) -> None:
        """Beam i goes on from beam parents[i] of the step before, and writes its next token."""
        tables = [self._tables[parent].copy() for parent in parents]
        if self.tokens % self.block_size:
            holders = Counter(table[-1] for table in tables)
            for table in tables:
                block = table[-1]
                if holders[block] > 1:
                    holders[block] -= 1
                    table[-1] = next(self._names)
                    self.copied_blocks += 1
        else:
            for table in tables:
                table.append(next(self._names))
        self._tables = tables
        self.tokens += 1
        self.block_steps += self.physical_blocks
        self.logical_block_steps += self.logical_blocks
