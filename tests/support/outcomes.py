"""What of a run must not depend on how many steps were taken at once, and what of it must agree
with the rest.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import hypothesis
import numpy as np

import kvsim
from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.results.departures import Departures
from kvsim.results.recorder import Recorder
from kvsim.results.result import Result, Run
from kvsim.results.series import SERIES_COLUMNS
from kvsim.simulation import Simulation
from support.token_times import TokenTimes

# A step that grows with the context: the second moments of a run count, and so do its ends.
STEP_TIME = {
    "kind": "linear",
    "base_us": 8000,
    "prefill_token_us": 40,
    "decode_seq_us": 60,
    "context_token_ns": 300,
}
# A small model over a pool of a few prompts, in which streams of a dozen requests meet.
CROWDED: dict[str, Any] = {
    "model": {"name": "opt-125m", "max_model_len": 1024},
    "memory": {"kv_cache_tokens": 1024},
    "step_time": STEP_TIME,
}

P = ParamSpec("P")
# Under policy = priority, sequences of equal priority that arrive at the same moment can preempt
# each other for ever: vLLM takes the first of those that max() finds equal (v1 scheduler, 0.33).
THRASHING = "without ever producing a token"


def or_thrashing(simulated: Callable[P, Any]) -> Callable[P, Any]:
    """The function's result, or the error message of a run in which sequences preempt each other
    for ever. Two forms of one run must end equally in this case too.
    """

    @wraps(simulated)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return simulated(*args, **kwargs)
        except InputError as error:
            if THRASHING not in str(error):
                raise
            return str(error)

    return answer


def unless_thrashing(test: Callable[P, None]) -> Callable[P, None]:
    """A property of runs that end: streams with sequences that preempt each other for ever are
    discarded.
    """

    @wraps(test)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            test(*args, **kwargs)
        except InputError as error:
            if THRASHING not in str(error):
                raise
            hypothesis.reject()

    return tried


@or_thrashing
def outcome(tables: dict[str, Any], requests: list[Request], max_steps: int | None) -> Any:
    """The summary but for the time it took, the exact sums, and the requests' table."""
    scenario = dict(tables) if max_steps is None else {**tables, "max_steps": max_steps}
    result = kvsim.simulate(scenario, requests)
    check_books(result)
    (run,) = result.runs
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    recorder = run.recorder
    assert recorder is not None
    sums = recorder.time_sum, recorder.step_sum, recorder.part_sums
    queues = recorder.running_sum, recorder.waiting_sum
    return summary, sums, queues, run.requests.to_dict("records")


def check_books(result: Result) -> None:
    """Check that the records of runs agree: gaps with token times, waiting and running counts with
    request times, series with sums.
    """
    tables = result.scenario
    kinds = [each.get("scheduler", tables["scheduler"])["kind"] for each in tables["allocator"]]
    # Requests of a replica that died waited there, or where no replica was up.
    elsewhere = bool({"failure", "autoscaler"} & tables.get("fleet", {}).keys())
    for run in result.runs:
        assert run.recorder is not None
        if "disaggregation" not in tables:  # where each side has a part of a sequence
            _check_moments(run, together="static" in kinds, elsewhere=elsewhere)
        _check_series(run.recorder)


def _check_moments(run: Run, *, together: bool, elsewhere: bool) -> None:
    """together: requests of a batch finish together. elsewhere: some requests waited or began on
    another engine, so that the recorded times and gaps are not complete.
    """
    recorder = run.recorder
    assert recorder is not None
    arrival, scheduled, first, finish, _ = Departures.of(recorder)
    assert ((arrival >= 0) & (arrival <= scheduled) & (scheduled < first)).all(), run.label
    assert (first <= finish).all(), run.label
    assert finish.max(initial=0) <= recorder.end_ps, run.label
    single = "speculation" not in run.summary
    if elsewhere:
        return
    check_gaps(recorder, to_the_end=not together, single=single)
    waited, ran = int((scheduled - arrival).sum()), int((finish - scheduled).sum())
    waited -= sum(seq.request.front_end_ps for seq in recorder.finished)
    for seq, ended_ps in recorder.failures:  # with an error, whenever
        began_ps = seq.first_scheduled_ps if seq.first_scheduled_ps >= 0 else ended_ps
        waited, ran = waited + began_ps - seq.arrival_ps, ran + ended_ps - began_ps
    assert recorder.waiting_sum + recorder.running_sum == waited + ran, run.label
    again = recorder.waiting_sum - waited  # who was preempted waited once more
    assert again == 0 or (again > 0 and run.summary["preemptions"]), (run.label, again)


def check_gaps(recorder: Recorder, *, to_the_end: bool = True, single: bool = True) -> None:
    """Every token but the first of each sequence follows a gap; together they fill the time from
    its first token to its last. to_the_end: which is when it leaves; static batches leave together.
    single: tokens come one by one, not several after one gap, as where drafts are accepted.
    """
    rows, alone = _gap_rows(recorder), recorder.late_gaps
    num = sum(seqs * steps for seqs, steps, _, _ in rows) + len(alone)
    most = sum(max(0, seq.output_tokens - 1) for seq in recorder.finished)
    most += sum(max(0, seq.num_outputs - 1) for seq, _ in recorder.failures)
    assert num == most if single else num <= most
    summed = sum(seqs * (k * ps + growth * (k * (k - 1) // 2)) for seqs, k, ps, growth in rows)
    ends = zip(recorder.finished, recorder.finish_ps, strict=True)
    if to_the_end and not recorder.failures:  # whose last tokens came some time before the error
        assert summed + sum(alone) == sum(end_ps - seq.first_token_ps for seq, end_ps in ends)


def _check_series(recorder: Recorder) -> None:
    rows = np.frombuffer(recorder.series, dtype=np.int64).reshape(-1, len(SERIES_COLUMNS))
    starts, ends, steps = rows[:, 0], rows[:, 1], rows[:, 2]
    assert (starts[1:] == ends[:-1]).all()
    assert (ends - starts).sum() == recorder.total_ps
    assert steps.sum() == recorder.steps
    for first in (-2 * len(CLASSES), -len(CLASSES)):
        classes = rows[:, first : first + len(CLASSES) or None]
        assert (classes.sum(axis=1) == recorder.capacity_bytes).all()


def check_tokens(simulation: Simulation) -> list[Run]:
    """Run a scenario in single steps, following each token, and check that the recorded gaps equal
    those between tokens.
    """
    runs = []
    for options, label in zip(simulation.scenario.allocator, simulation.labels, strict=True):
        times = TokenTimes()
        run = simulation.run(options, label, observer=times)
        assert not times.wrong, (label, times.wrong[:3])
        assert run.recorder is not None
        assert _each_gap(run.recorder) == times.gaps_ps(), label
        runs.append(run)
    return runs


def _each_gap(recorder: Recorder) -> list[int]:
    gaps = list(recorder.late_gaps)
    for count, steps, first, growth in _gap_rows(recorder):
        for step in range(steps):
            gaps += [first + growth * step] * count
    return sorted(gaps)


def _gap_rows(recorder: Recorder) -> list[tuple[int, ...]]:
    """(sequences, steps, first_ps, growth_ps) of each stretch."""
    return list(zip(*(recorder.gaps[column::4] for column in range(4)), strict=True))
