"""Local attention: of layers whose queries see only their own chunk, vLLM frees the ones before."""

from collections.abc import Iterable

from kvsim.capacity.engine_version import EngineVersion
from kvsim.model.kv_cache import LayerCache


def freed_chunks(
    caches: Iterable[LayerCache], version: EngineVersion, longest_tokens: int
) -> list[int]:
    """Tokens of a chunk, of each layer of which this version gives some of a sequence back."""
    if not version.frees_chunks:
        return []
    chunks = [cache.chunk_tokens for cache in caches]
    return [tokens for tokens in chunks if tokens and tokens < longest_tokens]
