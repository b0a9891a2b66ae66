"""The lines that an SGLang server logs of its pools (memory_pool.py, pool_configurator.py,
scheduler.py); sizes in GiB, which it calls GB. Its lines on free memory are left out.
"""

from kvsim.capacity.sglang.sizing import SglangPool
from kvsim.plumbing.units import GIB


def lines(pool: SglangPool) -> tuple[str, ...]:
    """The log lines of this pool, in the server's order."""
    pools = pool.pools
    printed = []
    if pools.window_tokens is not None:
        printed.append(
            f"Use sliding window memory pool. full_layer_tokens={pools.tokens}, "
            f"swa_layer_tokens={pools.window_tokens}"
        )
    if pools.states is not None:
        printed.append(
            f"Mamba Cache is allocated. max_mamba_cache_size: {pools.states} "
            f"({pools.state_bytes / GIB:.2f} GB)"
        )
    whole, half = pools.kv_bytes / GIB, pools.kv_bytes / 2 / GIB
    sizes = f"KV size: {whole:.2f} GB" if pool.latent else ""
    sizes = sizes or f"K size: {half:.2f} GB, V size: {half:.2f} GB"
    printed.append(f"KV Cache is allocated. #tokens: {pools.tokens}, {sizes}")
    printed.append(
        f"max_total_num_tokens={pools.tokens}, "
        f"chunked_prefill_size={pool.chunked_prefill_size}, "
        f"max_prefill_tokens={pool.max_prefill_tokens}, "
        f"max_running_requests={pools.max_running_requests}, context_len={pool.max_model_len}"
    )
    return tuple(printed)
