"""CUDA graphs for batches larger than the pool can hold take memory from the pool."""

from typing import ClassVar

from kvsim.plumbing.units import GIB
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class CudaGraphs(Cause):
    """Suspected where graphs of batches that never ran take a twentieth of what the pool has, and
    memory binds. Running without any graph is no cure here: what it costs in time is not simulated.
    """

    title: ClassVar[str] = "CUDA graphs of batches that the pool cannot hold"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        pool = case.simulation.pool
        if not case.memory_binds or not pool.cuda_graph_bytes:
            return None
        peak = int(case.series["num_running"].max())
        covering = 1 << max(peak - 1, 1).bit_length()  # the next power of two: no batch is lost
        cure = Cure(
            {"memory.max_cudagraph_capture_size": covering},
            f"--max-cudagraph-capture-size {covering}",
            "steps of more tokens, prompts among them, are launched kernel by kernel, which the "
            "step times do not show",
        )
        less = Simulation(Scenario.from_table(cure.put(case.table), case.folder), []).pool
        saved = pool.cuda_graph_bytes - less.cuda_graph_bytes
        if saved < SUBSTANTIAL * pool.capacity_bytes:
            return None
        evidence = (
            f"CUDA graphs take {pool.cuda_graph_bytes / GIB:.2f} GiB beside a pool of "
            f"{pool.capacity_bytes / GIB:.2f} GiB; at most {peak:,} sequences ran at once, and "
            f"graphs up to {covering} would take {less.cuda_graph_bytes / GIB:.2f} GiB",
        )
        return Suspicion(evidence, (cure,))
