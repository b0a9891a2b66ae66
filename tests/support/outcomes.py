"""What of a run must not depend on how many steps were taken at once."""

from typing import Any

import kvsim
from kvsim.request import Request
from kvsim.results.recorder import Recorder

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
    assert recorder is not None
    static = scenario.get("scheduler", {}).get("kind") == "static"
    check_gaps(recorder, to_the_end=not static, single="speculation" not in run.summary)
    sums = (recorder.time_sum, recorder.step_sum, recorder.running_sum, recorder.waiting_sum)
    return summary, sums, run.requests.to_dict("records")


def check_gaps(recorder: Recorder, *, to_the_end: bool = True, single: bool = True) -> None:
    """Every token but the first of each sequence follows a gap; together they fill the time from
    its first token to its last. to_the_end: which is when it leaves; static batches leave together.
    single: tokens come one by one, not several after one gap, as where drafts are accepted.
    """
    columns = [recorder.gaps[column::4] for column in range(4)]
    rows, alone = list(zip(*columns, strict=True)), recorder.late_gaps
    num = sum(seqs * steps for seqs, steps, _, _ in rows) + len(alone)
    most = sum(seq.output_tokens - 1 for seq in recorder.finished)
    assert num == most if single else num <= most
    summed = sum(seqs * (k * ps + growth * (k * (k - 1) // 2)) for seqs, k, ps, growth in rows)
    ends = zip(recorder.finished, recorder.finish_ps, strict=True)
    if to_the_end:
        assert summed + sum(alone) == sum(end_ps - seq.first_token_ps for seq, end_ps in ends)
