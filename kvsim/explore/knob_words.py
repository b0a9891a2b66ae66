"""Names, units and hints of scenario keys, as the page shows them."""

import re
from inspect import cleandoc

WORDS = {
    "num_requests": "Requests",
    "num_sessions": "Conversations",
    "limit": "Requests of the trace",
    "rate_per_s": "Arrival rate, 1/s",
    "rate_scale": "Speed of the trace, times",
    "num_users": "Users at a time",
    "gpu_memory_utilization": "Share of the GPU's memory, 0 to 1",
    "kv_cache_bytes": "Pool, bytes",
    "kv_cache_tokens": "Pool, tokens",
    "num_gpu_blocks": "Pool, blocks",
    "given as": "Size given as",
    "kind": "Kind",
    "name": "Name",
    "label": "Label",
    "seed": "Seed of all random numbers",
    "block_size": "Block size, tokens",
    "enable_prefix_caching": "Prefix cache",
    "initial_tokens": "First buffer, tokens",
    "factor": "Growth of a full buffer, times",
    "reserve": "Tokens reserved at admission",
    "placement": "Placement in memory",
    "max_model_len": "Longest sequence, tokens",
    "max_num_seqs": "Sequences at a time, at most",
    "max_num_batched_tokens": "Tokens of a step, at most",
    "tensor_parallel_size": "Tensor parallel GPUs",
    "kv_cache_dtype": "Type of the KV cache",
    "watermark": "Blocks kept free, share",
    "policy": "Order of the queue",
    "victim": "Sequence to preempt",
    "n": "Samples of each prompt",
    "of recipe": "Requests of the recipe",
    "prompt.tokens": "Prompt, tokens",
    "prompt.min_tokens": "Shortest prompt, tokens",
    "prompt.max_tokens": "Longest prompt, tokens",
    "output.tokens": "Output, tokens",
    "output.min_tokens": "Shortest output, tokens",
    "output.max_tokens": "Longest output, tokens",
    "turns.tokens": "Turns of a conversation",
    "think.mean_s": "Mean pause of a user, s",
    "max_context": "Longest conversation, tokens",
    "max_loras": "LoRA slots",
}


def words_of(name: str) -> str:
    """A key in words with its unit; the key itself if it has no words. For a dotted name, the last
    two parts are looked up, then the last.
    """
    parts = name.split(".")
    found = (WORDS.get(".".join(parts[-many:])) for many in (2, 1))
    return next(filter(None, found), name)


def hint_of(name: str, doc: str | None) -> str:
    """The sentence on the key `name` in the docstring of its option class, without the key."""
    text = " ".join(cleandoc(doc or "").split())
    found = re.search(rf"(?<!\S){re.escape(name)}(?:, \w+)*: (.+?\.)(?=\s|$)", text)
    return f"{name}: {found[1]}" if found else name
