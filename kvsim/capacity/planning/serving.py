"""The flags of a server that a plan depends on."""

from typing import NamedTuple

from kvsim.capacity.local_attention import gives_chunks_back
from kvsim.speculation import Speculation
from kvsim.vllm.rules import Packing


class Serving(NamedTuple):
    """Flags by vLLM's names, with its defaults.

    block_size: tokens in a block, as asked for; None: the engine's choice.
    batches_in_flight: batches that a window's admission counts, 2 under asynchronous scheduling.
    exports_states: the prefill kernel of recurrent layers writes states out within a chunk
        (FlashInfer's, on Hopper and Blackwell).
    decode_context_parallel_size: GPUs that share the tokens of a sequence.
    packing: see BlockRules.
    frees_chunks: local attention frees the blocks before the current chunk.
    """

    max_model_len: int
    max_num_batched_tokens: int
    block_size: int | None = None
    enable_prefix_caching: bool = True
    batches_in_flight: int = 2
    exports_states: bool = False
    decode_context_parallel_size: int = 1
    speculation: Speculation | None = None
    packing: Packing = "widest"
    frees_chunks: bool = True

    @property
    def drafted_tokens(self) -> int:
        """Tokens drafted ahead of each step."""
        return self.speculation.tokens if self.speculation else 0

    @property
    def gives_chunks_back(self) -> bool:
        """Whether local attention frees past chunks with these flags, drafter included."""
        return gives_chunks_back(frees_chunks=self.frees_chunks, speculation=self.speculation)

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens of one request that may be scheduled and not yet processed."""
        return self.batches_in_flight * self.max_num_batched_tokens
