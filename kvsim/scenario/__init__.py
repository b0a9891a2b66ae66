"""Scenarios: reading files and tables, building the replica that they describe, and checks before a
run.
"""

from kvsim.scenario.files import find_recipe, find_scenario, load_tables, recipes
from kvsim.scenario.options import (
    AnyAllocator,
    AnyScheduler,
    Scenario,
    checked_tables,
    no_workload,
)

__all__ = [
    "AnyAllocator",
    "AnyScheduler",
    "Scenario",
    "checked_tables",
    "find_recipe",
    "find_scenario",
    "load_tables",
    "no_workload",
    "recipes",
]
