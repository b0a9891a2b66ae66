"""A pool too small for what is asked of it."""

from typing import Any, ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

_SIZES = ("gpu_memory_utilization", "kv_cache_tokens", "num_gpu_blocks")
_RESERVES = ("weights_gib", "activation_gib", "other_gib")


class SmallPool(Cause):
    """Suspected where requests spent a twentieth of their time waiting for memory, computed a
    twentieth of their tokens again after being thrown out of it, or were refused.

    Proved with twice the pool and nothing else changed, which is what 8-bit keys and values, or
    a second GPU, come to.
    """

    title: ClassVar[str] = "a pool too small for its requests"
    resource: ClassVar[bool] = True

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        waited, again = case.waits.memory, case.recomputed_share
        refused = case.summary.requests.rejected
        if max(waited, again) < SUBSTANTIAL and not refused:
            return None
        length = case.simulation.max_model_len
        pool = case.simulation.pool
        evidence = [
            f"the pool of {case.capacity_tokens:,} tokens holds "
            f"{case.capacity_tokens / length:.1f} requests of max_model_len = {length:,}; "
            f"{100 * case.share('used'):.0f} % of it was at work on average"
        ]
        if waited >= SUBSTANTIAL:
            evidence.append(f"requests spent {100 * waited:.0f} % of their time waiting for memory")
        if again >= SUBSTANTIAL:
            evidence.append(f"{100 * again:.0f} % of all tokens computed had been computed before")
        if refused:
            evidence.append(f"{refused:,} of {case.num_requests:,} requests could never fit")
        given = case.table.get("memory", {})
        changes: dict[str, Any] = {
            f"memory.{key}": None for key in (*_SIZES, *_RESERVES) if key in given
        }
        changes |= {"memory.kv_cache_bytes": 2 * pool.capacity_bytes}
        ways = [f"--tensor-parallel-size {2 * case.simulation.scenario.model.tensor_parallel_size}"]
        if case.simulation.scenario.model.kv_cache_dtype == "auto":
            ways.insert(0, "--kv-cache-dtype fp8")
        cure = Cure(
            changes,
            " or ".join(ways),
            "what was run is twice the pool and nothing else, as a GPU with more memory has it"
            + ("; 8-bit keys and values change what a model says" if len(ways) > 1 else ""),
        )
        return Suspicion(tuple(evidence), (cure,))
