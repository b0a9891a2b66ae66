"""Random scenarios with a digest of all that their runs say, for one form to be held to the other.

`KVSIM_COMPILED=0 PYTHONPATH=tests python -m support.both_forms COUNT`
"""

import json
import random
import sys
from hashlib import sha256

from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from support.fuzzing import scenarios


def said(number: int) -> str:
    """Digest of summaries and tables of the scenario of this number, every other one watched; or
    the line that refuses it.
    """
    try:
        table = scenarios.scenario(random.Random(number))
        result = Simulation(Scenario.from_table(table)).result(addresses=number % 2 == 0)
    except InputError as error:
        return f"refused: {error}"
    digest = sha256()
    for run in result.runs:
        kept = {key: value for key, value in run.summary.as_json().items() if key != "wall_s"}
        digest.update(json.dumps(kept, sort_keys=True).encode())
        for name in ("requests", "memory", "addresses"):
            rows = run.table(name)
            digest.update(b"" if rows is None else rows.to_csv().encode())
    return digest.hexdigest()


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        print(number, said(number))
