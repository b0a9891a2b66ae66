"""Cut a stream to the number of requests that an examination needs."""

import copy
from pathlib import Path

from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.scenario_tables import Table

# A stretch of a trace shorter than this begins and ends as an empty server does.
LEAST_REQUESTS = 500


def shortened(table: Table, folder: Path, most: int, stretches: int) -> tuple[Table, str | None]:
    """The tables with at most about `most` requests, and a description of the cut; None: nothing
    was cut.

    Fewer requests are drawn, at the same rate. Of a trace the first ones are taken, `most` for each
    of its `stretches` if it is long enough to be cut into them. Of conversations fewer begin.
    """
    count = len(Simulation(Scenario.from_table(table, folder)).stream.requests)
    workload = table.get("workload")
    if count <= most or not isinstance(workload, dict):
        return table, None
    table = copy.deepcopy(table)
    workload, kind = table["workload"], table["workload"].get("kind")
    if kind == "trace":
        divided = workload.get("arrivals") is None and count >= LEAST_REQUESTS * stretches
        workload["limit"] = kept = min(count, most * stretches if divided else most)
        if kept == count:
            return table, None
        return table, f"of {count:,} requests the first {kept:,} were examined"
    if kind == "sessions":
        sessions = int(workload["num_sessions"])
        workload["num_sessions"] = kept = max(1, sessions * most // count)
        return table, f"of {sessions:,} conversations ({count:,} requests) {kept:,} were examined"
    if "num_requests" in workload:
        workload["num_requests"] = most
        return table, f"{most:,} requests were examined, not {count:,}"
    return table, None
