"""A pool too small for the load."""

from typing import Any, ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

_SIZES = ("gpu_memory_utilization", "kv_cache_tokens", "num_gpu_blocks")
_RESERVES = ("weights_gib", "activation_gib", "other_gib")


class SmallPool(Cause):
    """Suspected if requests spent a twentieth of their time waiting for memory, recomputed a
    twentieth of their tokens after preemptions, or were refused.

    Proved with twice the pool and nothing else changed. The cure is a flag that makes room for
    twice the tokens, with all that the flag does: an 8-bit cache also has shorter steps.
    """

    title: ClassVar[str] = "a pool too small for its requests"
    resource: ClassVar[bool] = True

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        waited, again = case.waits.memory, case.recomputed_share
        refused = case.summary.requests.rejected - len(case.too_long)
        if max(waited, again) < SUBSTANTIAL and not refused:
            return None
        length = case.simulation.max_model_len
        pool = case.simulation.pool
        room = f" of {case.capacity_tokens:,} tokens" if case.capacity_tokens else ""
        held = case.capacity_tokens / length if room else pool.max_concurrency
        evidence = [
            f"the pool{room} holds {held:,.1f} requests of max_model_len = {length:,}; "
            f"{100 * case.share('used'):.0f} % of it was at work on average"
        ]
        if waited >= SUBSTANTIAL:
            evidence.append(f"requests spent {100 * waited:.0f} % of their time waiting for memory")
        if again >= SUBSTANTIAL:
            evidence.append(f"{100 * again:.0f} % of all tokens computed had been computed before")
        if refused:
            evidence.append(f"{refused:,} of {case.num_requests:,} requests could never fit")
        given = case.table.get("memory", {})
        removed: dict[str, Any] = {
            f"memory.{key}": None for key in (*_SIZES, *_RESERVES) if key in given
        }
        proof = Cure(removed | {"memory.kv_cache_bytes": 2 * pool.capacity_bytes}, "twice the pool")
        options = case.simulation.scenario.model
        if options.kv_cache_dtype == "auto":
            cure = Cure(
                {"model.kv_cache_dtype": "fp8"},
                "--kv-cache-dtype fp8",
                "8-bit keys and values change what a model says",
            )
        else:
            gpus = 2 * options.tensor_parallel_size
            flags = f"--tensor-parallel-size {gpus}"
            cure = Cure({"model.tensor_parallel_size": gpus}, flags, "twice the GPUs")
        return Suspicion(tuple(evidence), (cure,), proof)
