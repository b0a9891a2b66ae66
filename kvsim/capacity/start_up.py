"""The engine's log of its KV cache at its start, as in its version.

There is a warning for each kind of layers with a last group that is not full, and two lines at the
end.

    Add 8 padding layers, may waste at most 15.38% KV cache memory
    GPU KV cache size: 1,277,184 tokens
    Maximum concurrency for 8,192 tokens per request: 155.75x

The concurrency is the blocks over those that one request of max_model_len tokens can hold. If not
even one fits in addition to the null block, the engine refuses to start instead. The tokens are,
since 0.21, that concurrency times max_model_len; before, the blocks of one group times its tokens.
"""

from typing import NamedTuple

from kvsim.capacity.planning import CachePlan
from kvsim.vllm.rules import FIRST_BLOCK, SizingRules


class StartUp(NamedTuple):
    """Figures that the engine logs of its KV cache.

    num_gpu_blocks: blocks of the plan. block_size: tokens in a block, as the engine sets it.
    kv_cache_size_tokens, max_concurrency: as logged for requests of max_model_len tokens.
    longest_tokens: tokens of the longest request that fits alone; an engine with fewer than
        max_model_len does not start. padding: (padding layers, layers) as warned of.
    states_short_of: max_num_seqs, where there are fewer blocks of recurrent states and the engine
        refuses that; None where it does not.
    """

    num_gpu_blocks: int
    block_size: int
    kv_cache_size_tokens: int
    max_concurrency: float
    max_model_len: int
    longest_tokens: int
    padding: tuple[tuple[int, int], ...] = ()
    states_short_of: int | None = None

    @property
    def starts(self) -> bool:
        """Whether one request of max_model_len tokens fits, and a state of each sequence."""
        return self.longest_tokens >= self.max_model_len and self.states_short_of is None

    @property
    def refusal(self) -> str:
        """Why the engine does not start; empty where it does."""
        if self.longest_tokens < self.max_model_len:
            return (
                f"{self.max_model_len:,} tokens do not fit; estimated maximum model length "
                f"{self.longest_tokens:,}"
            )
        if self.states_short_of is not None:
            return (
                f"max_num_seqs ({self.states_short_of:,}) exceeds available Mamba cache blocks "
                f"({self.num_gpu_blocks:,}); lower max_num_seqs to at most "
                f"{self.num_gpu_blocks:,} or raise gpu_memory_utilization"
            )
        return ""

    def lines(self) -> tuple[str, ...]:
        """The lines as the engine prints them, or the refusal after its warnings."""
        warnings = tuple(
            f"Add {padding} padding layers, may waste at most {padding / layers * 100:.2f}% KV "
            "cache memory"
            for padding, layers in self.padding
        )
        if not self.starts:
            return *warnings, f"refused to start: {self.refusal}"
        return (
            *warnings,
            f"GPU KV cache size: {self.kv_cache_size_tokens:,} tokens",
            f"Maximum concurrency for {self.max_model_len:,} tokens per request: "
            f"{self.max_concurrency:.2f}x",
        )


def start_up(
    plan: CachePlan,
    num_blocks: int,
    version: SizingRules,
    max_num_seqs: int = 0,
    *,
    eager: bool = False,
) -> StartUp:
    """The log of an engine of this version with `num_blocks` blocks.

    max_num_seqs: sequences that each need a state; eager: without CUDA graphs, which need such
    states for the capture.
    """
    longest = plan.serving.max_model_len
    concurrency = num_blocks / plan.printed_blocks_of(longest)
    if version.tokens_by_concurrency:
        tokens = int(concurrency * longest)
    else:
        shards = plan.serving.decode_context_parallel_size
        tokens = num_blocks // len(plan.groups) * plan.block_size * shards
    fits = _longest(plan, num_blocks - FIRST_BLOCK)
    found = StartUp(num_blocks, plan.block_size, tokens, concurrency, longest, fits)
    needs_states = version.state_a_sequence and not eager
    if needs_states and max_num_seqs > num_blocks and any(g.state_bytes for g in plan.groups):
        return found._replace(states_short_of=max_num_seqs)
    return found


def _longest(plan: CachePlan, blocks: int) -> int:
    """Tokens of the longest request that fits in `blocks`, at most max_model_len; 0: none fits."""
    least, most = 0, plan.serving.max_model_len
    while least < most:
        middle = (least + most + 1) // 2
        if plan.blocks_of(middle) <= blocks:
            least = middle
        else:
            most = middle - 1
    return least
