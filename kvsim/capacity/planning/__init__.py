"""Plan of a KV cache: from layers to groups and blocks, as vLLM 0.33.0 does at its start.

    caches of layers -> groups of layers (`kvsim.vllm.grouping`, `packed`) -> CachePlan (`plan`)

By its v1/core/kv_cache_planning.py, v1/core/kv_cache_utils.py and v1/kv_cache_interface.py.
"""

from kvsim.capacity.planning.plan import CachePlan, plan_cache
from kvsim.capacity.planning.serving import Serving
from kvsim.speculation import Speculation

__all__ = ["CachePlan", "Serving", "Speculation", "plan_cache"]
