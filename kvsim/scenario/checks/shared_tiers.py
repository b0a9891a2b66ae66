"""Whether the replicas of a scenario share a tier."""

from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario


def shared_by(scenario: Scenario) -> str | None:
    """The key by which the replicas of a fleet share a tier; None: they share none."""
    for place, tier in enumerate(scenario.tier):
        if tier.is_shared:
            return f"tier.{place}.shared"
    if any(each.shares_storage for each in scenario.allocator):
        return "allocator.hicache_storage_shared"
    return None


def check_shared(scenario: Scenario) -> None:
    """Raise InputError for a tier that replicas share where there is one replica."""
    where = shared_by(scenario)
    if where is not None:
        raise InputError(
            "one replica shares its tiers with no other",
            where=where,
            value=True,
            remedy="leave it out, or give the scenario fleet.replicas",
        )
