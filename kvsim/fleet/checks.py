"""Checks of fleet options: wrong numbers, and features that cannot be combined."""

from kvsim.fleet.options import FleetOptions
from kvsim.plumbing.errors import InputError
from kvsim.support.parts import ServerParts
from kvsim.support.table import check


def check_changes(options: FleetOptions, apart: list[bool], replicas_of_groups: list[int]) -> None:
    """Raise InputError for failures, an autoscaler, cells or lockstep that do not fit the replicas.
    apart: whether each replica is a deployment of prefill and decode replicas. replicas_of_groups:
    number of replicas in each group.
    """
    for number, failure in enumerate(options.failure):
        where = f"fleet.failure.{number}.replica"
        if failure.replica >= len(apart):
            raise InputError(
                "no such replica at the start",
                where=where,
                value=failure.replica,
                limit=f"{len(apart) - 1}",
            )
        if apart[failure.replica]:
            check(ServerParts(transfers="apart", failure=where, dies=failure.replica))
    scaling, cells = options.autoscaler, options.cells
    check(
        ServerParts(
            lockstep=options.router.lets_step_together,
            changes=scaling is not None or bool(options.failure),
            transfers="apart" if any(apart) else "",
            cells=cells,
        )
    )
    if cells > len(apart):
        raise InputError(
            "there are more cells than replicas",
            where="fleet.cells",
            value=cells,
            limit=f"{len(apart)}",
        )
    if scaling is None:
        return
    if scaling.group >= len(replicas_of_groups):
        raise InputError(
            "no such group",
            where="fleet.autoscaler.group",
            value=scaling.group,
            limit=f"{len(replicas_of_groups) - 1}",
        )
    if not scaling.min_replicas <= len(apart) <= scaling.max_replicas:
        raise InputError(
            "the replicas at the start are outside of the autoscaler's limits",
            where="fleet.replicas",
            value=len(apart),
            limit=f"{scaling.min_replicas} to {scaling.max_replicas}",
            remedy="change fleet.replicas, or min_replicas or max_replicas of the autoscaler",
        )
