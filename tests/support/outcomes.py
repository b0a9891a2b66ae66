"""What of a run must not depend on how many steps were taken at once."""

from typing import Any

import kvsim
from kvsim.request import Request

# A step that grows with the context: the second moments of a run count, and so do its ends.
STEP_TIME = {
    "kind": "linear",
    "base_us": 8000,
    "prefill_token_us": 40,
    "decode_seq_us": 60,
    "context_token_ns": 300,
}


def outcome(tables: dict[str, Any], requests: list[Request], max_steps: int | None) -> Any:
    """The summary but for the time it took, the exact sums, and the requests' table."""
    scenario = dict(tables) if max_steps is None else {**tables, "max_steps": max_steps}
    result = kvsim.simulate(scenario, requests)
    (run,) = result.runs
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    recorder = run.recorder
    sums = (recorder.time_sum, recorder.step_sum, recorder.running_sum, recorder.waiting_sum)
    return summary, sums, run.requests.to_dict("records")
