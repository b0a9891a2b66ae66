"""The engine's flags leave device memory unused."""

from typing import ClassVar

from kvsim.capacity.options import WAYS
from kvsim.plumbing.units import GIB
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class UnusedMemory(Cause):
    """Suspected if memory is the bottleneck and the flags give the engine less of the device than
    its default, by a twentieth of the pool.

    A value above the default is not suspected: the default's rest is for torch's own fragments.
    """

    title: ClassVar[str] = "memory of the GPU left unused"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        pool, memory = case.simulation.pool, case.simulation.scenario.memory
        if pool.sized_by != WAYS[0] or not case.memory_binds:
            return None
        usual = memory.version.sizing.default_utilization
        won = (usual - memory.utilization) * pool.total_bytes
        if won < SUBSTANTIAL * pool.capacity_bytes:
            return None
        evidence = (
            f"gpu_memory_utilization = {memory.utilization:g} leaves "
            f"{pool.unused_bytes / GIB:.1f} GiB of {pool.total_bytes / GIB:.1f} GiB unused, beside "
            f"a pool of {pool.capacity_bytes / GIB:.1f} GiB; the engine's own default is {usual:g}",
        )
        cure = Cure(
            {"memory.gpu_memory_utilization": usual},
            f"--gpu-memory-utilization {usual:g}",
            "other users of the GPU must fit in the rest",
        )
        return Suspicion(evidence, (cure,))
