"""One benchmark in a process of its own: how long its parts took, as JSON on stdout.

    process.py FOLDER SCENARIO [KEY=VALUE ...]

FOLDER takes summary and tables (no page). Only what older commits have too is called here, so that
they can be measured by it.
"""

import contextlib
import json
import os
import sys
from pathlib import Path


def cpu_s() -> float:
    """CPU seconds of this process so far, its start included."""
    return sum(os.times()[:2])


def main() -> None:
    folder, scenario, *assignments = sys.argv[1:]
    parts = {"python": cpu_s()}
    began = cpu_s()
    with contextlib.suppress(ImportError):
        from kvsim.plumbing.process import lean

        lean()

    def part(name: str) -> None:
        nonlocal began
        now = cpu_s()
        parts[name], began = now - began, now

    from kvsim.results import store
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    part("imports")
    simulation = Simulation(Scenario.load(scenario, assignments))
    part("reading")
    result = simulation.result()
    part("engine")
    store.write(Path(folder), result, "")
    part("writing")
    from pyarrow.parquet import read_metadata

    (run,) = result.runs if len(result.runs) == 1 else getattr(result, "fleets", result.runs)
    summary = run.summary if hasattr(run, "summary") else run
    print(
        json.dumps(
            {
                "parts": parts,
                "requests": summary["requests"]["finished"],
                "output_tokens": sum(
                    request.output_tokens for request in simulation.stream.requests
                ),
                "plans": read_metadata(Path(folder) / "memory.parquet").num_rows,
                "steps": summary["steps"],
            }
        )
    )


if __name__ == "__main__":
    main()
