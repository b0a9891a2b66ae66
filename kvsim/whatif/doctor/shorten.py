"""A stream cut to what a doctor needs to see of it."""

import copy
from pathlib import Path

from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.tables import Table


def shortened(table: Table, folder: Path, most: int) -> tuple[Table, str | None]:
    """The tables with about `most` requests at most, and what was done, in words; None: nothing.

    Drawn requests are drawn fewer, at the same rate; of a trace the first ones are taken; of
    conversations so many fewer begin.
    """
    count = len(Simulation(Scenario.from_table(table, folder)).stream.requests)
    workload = table.get("workload")
    if count <= most or not isinstance(workload, dict):
        return table, None
    table = copy.deepcopy(table)
    workload, kind = table["workload"], table["workload"].get("kind")
    if kind == "trace":
        workload["limit"] = most
        return table, f"of {count:,} requests the first {most:,} were examined"
    if kind == "sessions":
        sessions = int(workload["num_sessions"])
        workload["num_sessions"] = kept = max(1, sessions * most // count)
        return table, f"of {sessions:,} conversations ({count:,} requests) {kept:,} were examined"
    if "num_requests" in workload:
        workload["num_requests"] = most
        return table, f"{most:,} requests were examined, not {count:,}"
    return table, None
