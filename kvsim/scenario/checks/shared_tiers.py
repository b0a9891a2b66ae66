"""Whether the replicas of a scenario share a tier."""

from kvsim.scenario import Scenario
from kvsim.support.parts import ServerParts
from kvsim.support.table import check


def shared_by(scenario: Scenario) -> str | None:
    """The key by which the replicas of a fleet share a tier; None if they share none."""
    for place, tier in enumerate(scenario.tier):
        if tier.shared_key:
            return f"tier.{place}.{tier.shared_key}"
    for each in scenario.allocator:
        if each.shared_key:
            return f"allocator.{each.shared_key}"
    return None


def check_shared(scenario: Scenario) -> None:
    """Raise InputError for a shared tier in a scenario with only one replica."""
    apart = "" if scenario.disaggregation is None else "apart"
    check(ServerParts(shared=shared_by(scenario) or "", transfers=apart, alone=True))
