"""Refusals of combinations in a fleet."""

from kvsim.fleet.options import FleetOptions
from kvsim.plumbing.errors import InputError


def check_changes(options: FleetOptions, apart: list[bool], replicas_of_groups: list[int]) -> None:
    """Raise InputError for failures, an autoscaler, cells or steps in common that do not fit the
    replicas. apart: whether each consists of prefill and decode replicas.
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
            raise InputError(
                "a failure within prefill and decode replicas is not simulated",
                where=where,
                value=failure.replica,
                remedy="leave [disaggregation] or the failure out",
            )
    scaling, cells = options.autoscaler, options.cells
    lockstep = options.router.sync_steps is not None
    if lockstep and (scaling is not None or options.failure):
        raise InputError(
            "ranks that step together do not start or die alone",
            where="fleet.router.lockstep",
            value=True,
            remedy="leave it out, or the autoscaler and the failures",
        )
    if lockstep and any(apart):
        raise InputError(
            "ranks that step together are single replicas",
            where="fleet.router.lockstep",
            value=True,
            remedy="leave it or [disaggregation] out",
        )
    if cells > 1 and (scaling is not None or options.failure):
        raise InputError(
            "replicas of a fleet of several cells do not start or die",
            where="fleet.cells",
            value=cells,
            remedy="leave fleet.cells out, or the autoscaler and the failures",
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
