"""Requests wait for a LoRA adapter slot although there is memory."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class FewAdapters(Cause):
    """Suspected where requests spent a twentieth of their time waiting for one of max_loras slots.

    Where [memory] keeps room for adapters, the cure is run with the pool that more of them leave.
    """

    title: ClassVar[str] = "too few LoRA adapters that run at once"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        served = case.simulation.replica_spec(case.allocator).scheduler  # with those of [memory]
        limit = case.option(served, "most_adapters")
        waited = case.waits.adapters
        asked = {each.adapter for each in case.simulation.stream.requests} - {None}
        if not limit or waited < SUBSTANTIAL or len(asked) <= limit:
            return None
        peak = case.summary.memory.peak_allocated
        evidence = (
            f"requests spent {100 * waited:.0f} % of their time waiting for a slot of an adapter: "
            f"they ask for {len(asked):,} adapters, and max_loras = {limit:,} run at once",
            f"at its fullest the pool was {100 * peak:.0f} % taken",
        )
        tried = dict.fromkeys(min(times * limit, len(asked)) for times in (2, 4, 16))
        return Suspicion(evidence, tuple(_more(case, value) for value in tried))


def _more(case: ExaminedRun, value: int) -> Cure:
    part = "memory" if case.simulation.scenario.memory.max_loras else "scheduler"
    changes = {f"{part}.max_loras": value}
    flags, host = f"--max-loras {value}", case.option(case.scheduler, "max_cpu_loras")
    if host is not None and host < value:
        changes["scheduler.max_cpu_loras"] = value
        flags += f" --max-cpu-loras {value}"
    return Cure(changes, flags)
