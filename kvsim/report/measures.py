"""The key numbers of a run: name, key in summary.json, formatting, and the better direction."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kvsim.report import numbers
from kvsim.results.summary import RunSummary

# Numbers of a run by their keys in summary.json: a RunSummary, or the row of a sweep's table.
Numbers = Mapping[str, Any]


class Measure(NamedTuple):
    """One key number of a run.

    title: full name. short: name for a narrow column. value: the number of a run, None if it does
    not apply. form: formats the number. better: which direction is better for the same work, None
    if neither is. More running sequences, for example, may mean that memory is well used, or that
    steps are slow. meaning: explanation of the name. always: whether to show it even if it is 0 or
    missing in every run.
    """

    title: str
    short: str
    value: Callable[[Numbers], float | None]
    form: Callable[[float | None], str]
    better: Literal["higher", "lower"] | None
    meaning: str
    always: bool = False

    @property
    def is_time(self) -> bool:
        """Whether it is a time, which varies between seeds by factors."""
        return self.form is numbers.seconds

    def text(self, run: Numbers) -> str:
        """The formatted number of one run."""
        return self.form(self.value(run))


def at_key(key: str) -> Callable[[Numbers], float | None]:
    """A function that reads the number at a dotted key, such as `ttft_s.p50`; None if it is
    missing.
    """

    def value(run: Numbers) -> float | None:
        found: Any = run
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found if isinstance(found, int | float) else None

    return value


def _hit_rate(run: Numbers) -> float | None:
    cache = run["prefix_cache"]
    return cache["hit_tokens"] / cache["query_tokens"] if cache["query_tokens"] else None


MEASURES: dict[str, Measure] = {
    "finished": Measure(
        "Requests finished", "done", at_key("requests.finished"), numbers.count,
        "higher", "Requests that got all their output.", always=True,
    ),
    "rejected": Measure(
        "Requests refused", "refused", at_key("requests.rejected"), numbers.count,
        "lower", "Requests that could never fit, refused on arrival.",
    ),
    "makespan": Measure(
        "Makespan", "makespan", at_key("makespan_s"), numbers.seconds,
        "lower", "From the first arrival to the end of the last step.", always=True,
    ),
    "requests_per_s": Measure(
        "Requests per second", "req/s", at_key("requests_per_s"), numbers.number,
        "higher", "Requests finished over the makespan.", always=True,
    ),
    "tokens_per_s": Measure(
        "Output tokens per second", "tok/s", at_key("output_tokens_per_s"), numbers.number,
        "higher", "Output tokens over the makespan.", always=True,
    ),
    "running": Measure(
        "Sequences running, mean", "running", at_key("running_mean"), numbers.number,
        None, "How many sequences the engine worked on at a time, on average.", always=True,
    ),
    "ttft_p50": Measure(
        "Time to first token, median", "TTFT p50", at_key("ttft_s.p50"), numbers.seconds,
        "lower", "Half of the requests saw their first token sooner.", always=True,
    ),
    "ttft_p99": Measure(
        "Time to first token, p99", "TTFT p99", at_key("ttft_s.p99"), numbers.seconds,
        "lower", "99 of 100 requests saw their first token sooner.", always=True,
    ),
    "tpot_p50": Measure(
        "Time per output token, median", "TPOT p50", at_key("tpot_s.p50"), numbers.seconds,
        "lower", "The mean gap between a request's tokens after the first.", always=True,
    ),
    "tpot_p99": Measure(
        "Time per output token, p99", "TPOT p99", at_key("tpot_s.p99"), numbers.seconds,
        "lower", "99 of 100 requests read faster than this.", always=True,
    ),
    "e2e_p50": Measure(
        "End to end, median", "E2E p50", at_key("e2e_s.p50"), numbers.seconds,
        "lower", "From arrival to the last output token.", always=True,
    ),
    "e2e_p99": Measure(
        "End to end, p99", "E2E p99", at_key("e2e_s.p99"), numbers.seconds,
        "lower", "99 of 100 requests were done sooner.", always=True,
    ),
    "preemptions": Measure(
        "Preemptions", "preempt", at_key("preemptions"), numbers.count,
        "lower", "How often a running sequence lost its memory to let the others go on.",
        always=True,
    ),
    "recomputed": Measure(
        "Tokens computed again", "recomputed", at_key("recomputed_tokens"), numbers.count,
        "lower", "Work that was lost to preemption and done twice.",
    ),
    "copied": Measure(
        "KV copied", "copied", at_key("copied_bytes"), numbers.size,
        "lower", "Bytes moved on the device to grow buffers or to split shared blocks.",
    ),
    "swapped": Measure(
        "KV swapped", "swapped", at_key("swapped_bytes"), numbers.size,
        None, "Bytes moved between the device and the host.",
    ),
    "hits": Measure(
        "Prompt tokens found in the prefix cache", "hits", _hit_rate, numbers.percent,
        "higher", "Prompt tokens that did not have to be computed, those in tiers too.",
    ),
    "peak_used": Measure(
        "Pool used, peak", "peak used", at_key("memory.peak_used"), numbers.percent,
        None, "The most of the pool that ever held live keys and values.", always=True,
    ),
    "peak_allocated": Measure(
        "Pool allocated, peak", "peak held", at_key("memory.peak_allocated"), numbers.percent,
        None, "The most of the pool that was ever handed out.", always=True,
    ),
}  # fmt: skip


def shown(names: Sequence[str], runs: Sequence[RunSummary]) -> list[Measure]:
    """The measures of these names that apply to at least one of the runs."""
    measures = [MEASURES[name] for name in names]
    return [m for m in measures if m.always or any(m.value(run) for run in runs)]


def best(measure: Measure, runs: Sequence[RunSummary]) -> set[int]:
    """Indices of the runs with the best formatted value of this measure.

    Empty if neither direction is better, if all texts are equal, or if the runs did not finish the
    same requests. A run that refuses long requests is quick with the others. Prefill replicas never
    count, as they are no alternative to the decode replicas of their deployment.
    """
    ranked = {index: run for index, run in enumerate(runs) if run.pool_of != "prefill"}
    values = {index: measure.value(run) for index, run in ranked.items()}
    known = [value for value in values.values() if value is not None]
    if len({measure.form(value) for value in values.values()}) < 2 or not known:
        return set()
    if not judged(measure, list(ranked.values())):
        return set()
    top = measure.form(max(known) if measure.better == "higher" else min(known))
    return {index for index, value in values.items() if measure.form(value) == top}


def judged(measure: Measure, runs: Sequence[RunSummary]) -> bool:
    """Whether this measure can rank these runs."""
    one_stream = len({run.requests.submitted for run in runs}) < 2
    return measure.better is not None and ((measure in _COUNTS and one_stream) or same_work(runs))


def same_work(runs: Sequence[RunSummary]) -> bool:
    """Whether all runs finished equally many requests of the same stream."""
    return len({run.requests.finished for run in runs}) < 2


# Requests finished and refused, by which runs of the same stream may be compared.
_COUNTS = (MEASURES["finished"], MEASURES["rejected"])
