"""The subject of an examination: one allocator of a scenario, with a stream as long as needed."""

from pathlib import Path
from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.results.measured import MeasuredSummary
from kvsim.scenario import Scenario
from kvsim.whatif.deployments import check_alike, num_replicas
from kvsim.whatif.doctor.real import Beside
from kvsim.whatif.doctor.shorten import shortened
from kvsim.whatif.scenario_tables import Table, allocator_alone, is_paged


class DoctorSubject(NamedTuple):
    """One server to examine. table, folder: the scenario with only one allocator and a shortened
    stream. notes: on cuts and assumptions. name: of a real run. beside: numbers of the real run and
    of its simulation. measured: statistics that `kvsim import` stored.
    """

    table: Table
    folder: Path
    notes: tuple[str, ...]
    name: str = ""
    beside: tuple[Beside, ...] = ()
    measured: MeasuredSummary | None = None


def subject_of(
    table: Table, folder: Path, label: str | None, most_requests: int, stretches: int
) -> DoctorSubject:
    """The allocator of this label, its stream shortened (`shortened`); for None the first paged
    one, or the first there is. InputError where there is none.
    """
    scenario = Scenario.from_table(table, folder)
    check_alike(scenario, "doctor")
    found = None
    if label is None:
        found = allocator_alone(table, folder, lambda options, _: is_paged(options))
        found = found or allocator_alone(table, folder, lambda _, __: True)
    else:
        found = allocator_alone(table, folder, lambda _, name: name == label)
    if found is None:
        raise InputError(
            "no allocator of that label",
            where="--allocator",
            value=label,
            remedy=f"labels: {', '.join(scenario.labels())}",
        )
    name, alone = found
    most = most_requests * num_replicas(scenario)
    alone, cut = shortened(alone, folder, most, stretches)
    others = len(scenario.allocator) - 1
    notes = [f"of {others + 1} allocators {name} was examined"] if others else []
    return DoctorSubject(alone, folder, tuple([*notes, cut] if cut else notes))
