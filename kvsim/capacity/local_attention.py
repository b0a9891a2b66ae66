"""Local attention: queries see only their own chunk, and vLLM frees the chunks before."""

from kvsim.speculation import Speculation


def gives_chunks_back(*, frees_chunks: bool, speculation: Speculation | None) -> bool:
    """Whether vLLM frees the chunks before the current one; frees_chunks: see SizingRules. Under a
    drafter that reads the target's states vLLM 0.33 does not (config/vllm.py).
    """
    return frees_chunks and not (speculation is not None and speculation.rules.reads_target)
