"""Layer groups of unequal size: every block is as large as the largest group needs."""

from typing import ClassVar

from kvsim.memory.paged.options import Paged
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class Padding(Cause):
    """Suspected if padding layers, and unfilled slots in the last block of each group, take a
    twentieth of the pool.
    """

    title: ClassVar[str] = "padding in the blocks of groups of layers"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        paged = case.allocator
        if not case.several_tables or not isinstance(paged, Paged):
            return None
        if case.simulation.layout.has_own_blocks:  # no flag changes these
            return None
        idle = sum(case.share(name) for name in ("reserved", "overprovisioned", "rounding"))
        if idle < SUBSTANTIAL or not case.memory_binds:
            return None
        grouping = paged.grouping(case.simulation.layout)
        layers = grouping.group_layers * len(grouping.groups)
        sizes = " or ".join(f"{n:,}" for n in sorted({g.block_size for g in grouping.groups}))
        evidence = [
            f"{100 * idle:.0f} % of the pool was held and empty, against "
            f"{100 * case.share('used'):.0f} % at work",
            f"{len(grouping.groups)} groups of {grouping.group_layers} layers, "
            f"{grouping.padding_layers} of {layers} of them padding; each sequence has a last "
            f"block of {sizes} tokens in every group",
        ]
        cures = []
        if not any(group.state_bytes for group in grouping.groups):
            changes = {"allocator.0.disable_hybrid_kv_cache_manager": True}
            cures.append(Cure(changes, "--disable-hybrid-kv-cache-manager"))
        if paged.block_size > _SMALL:
            cures.append(Cure({"allocator.0.block_size": _SMALL}, f"--block-size {_SMALL}"))
        return Suspicion(tuple(evidence), tuple(cures))


_SMALL = 16  # tokens in a block, vLLM's default and the least its kernels take
