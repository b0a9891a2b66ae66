"""Refusal of requests that no step of continuous batching could compute within its token budget."""

from kvsim.engine.schedulers.knobs import Knobs
from kvsim.memory.allocator import Refusal
from kvsim.request import Request


def budget_refusal(
    request: Request, knobs: Knobs, chunk_tokens: int, input_slots: int
) -> Refusal | None:
    """Why no step has enough token budget for `request`; None if steps have.

    chunk_tokens: fewest tokens of a chunk. input_slots: budget tokens that the drafter reads for
    each sequence.
    """
    longest = knobs.max_num_batched_tokens - input_slots
    if request.final_tokens <= longest:
        return None
    if longest < chunk_tokens <= knobs.longest_chunk:
        return Refusal(
            "it is computed to the ends of whole blocks of states, and no step has room for "
            "one and the tokens that its drafter reads",
            chunk_tokens + input_slots,
            knobs.max_num_batched_tokens,
            "tokens (max_num_batched_tokens)",
            "raise it, or draft by another method",
        )
    if knobs.enable_chunked_prefill:
        return None
    return Refusal(
        "without chunked prefill no step could recompute it whole",
        request.final_tokens,
        longest,
        "tokens (max_num_batched_tokens)",
        "enable chunked prefill or raise the limit",
    )
