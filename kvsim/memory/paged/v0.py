"""The paged allocator under vLLM v0's rules (Kwon et al., SOSP 2023, artifact).

They differ from later ones in four points: every block of the pool can be had (no null block); the
watermark holds for every admission, in an idle engine too; so a request that can never leave that
many blocks free is refused; and a decoding sequence asks for one free block before each token, even
if the token needs none.
"""

from kvsim.memory.allocator import Refusal
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence


class PagedV0Allocator(PagedAllocator):
    """Blocks go out last in, first out, as returned ones without content always do."""

    null_blocks = 0
    default_watermark = 0.01

    def refusal(self, request: Request) -> Refusal | None:
        final = request.prompt_tokens + request.output_tokens - 1
        last_step = ceil_div(final - 1, self.block_size) + 1 if request.output_tokens > 1 else 0
        need = max(ceil_div(final, self.block_size) + self._watermark_blocks, last_step)
        if need <= self.pool.num_blocks - 1:
            return None
        return Refusal(
            "more KV blocks than the pool has beside its watermark",
            need,
            self.pool.num_blocks - 1,
            f"blocks of {self.block_size} tokens",
            "shorten the request or enlarge the pool",
        )

    def _blocks_needed(self, hits: list[int], tokens: int, *, busy: bool) -> int:
        return super()._blocks_needed(hits, tokens, busy=True)

    def admit(
        self, seq: Sequence, num_tokens: int, *, cached_tokens: int, reserve_tokens: int, busy: bool
    ) -> bool:
        """As promised; what comes back from host memory takes its blocks and one more."""
        if cached_tokens > self.cached_tokens(seq):
            need = ceil_div(cached_tokens, self.block_size) + 1 + self._watermark_blocks
            if need > self.pool.num_free:
                return False
        return super().admit(
            seq,
            num_tokens,
            cached_tokens=cached_tokens,
            reserve_tokens=reserve_tokens,
            busy=busy,
        )

    def extend(self, seq: Sequence, num_tokens: int) -> bool:
        if seq.decoding and not self.pool.num_free:
            return False
        return super().extend(seq, num_tokens)

    def due(self) -> list[Sequence]:
        return [seq for seq in self._live if seq.decoding and seq not in self._extended]

    def steps_that_fit(self, limit: int) -> int:
        """Steps after which a block is still free: nobody can have missed one then."""
        return self._steps_within(self.pool.num_free - 1, limit) if self.pool.num_free else 0
