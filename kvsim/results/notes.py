"""Notes on a run: limits of its numbers that a reader should know."""

from collections.abc import Sequence

from kvsim.results.measurement import queue_grew, queue_grew_within
from kvsim.results.recorder import Recorder
from kvsim.results.summary import RunSummary, SummaryNote, WindowSummary

_UNSHARED = "this workload has no shared prefixes"
_SHARED = (
    "shared prefixes fill no whole block, or were evicted before they were needed (`kvsim cache` "
    "shows which)"
)


def notes_on(
    summary: RunSummary,
    recorder: Recorder,
    *,
    shareable: bool = False,
    before: Sequence[tuple[str, str]] = (),
) -> tuple[SummaryNote, ...]:
    """The notes of a run; `about` is one of the words below.

    refused: requests were refused on arrival. saturated: the queue grew as long as requests came.
    window: it grew within the window that was given or found steady. prefix-cache: the cache was on
    and found nothing, or is off by default. step-time: steps were beyond those measured. engine: a
    fault of the engine was not followed, or it would refuse what is simulated. pool: the device
    cannot hold it. idle-keys: keys of the scenario change nothing.

    shareable: whether requests name content that other requests could hit. before: what is
    known before the run: what each is about, and its sentence.
    """
    found = list(before)
    requests, steps = summary.requests, summary.steps
    if requests.rejected:
        _, _, reason = recorder.rejected[0]
        all_, refused = requests.submitted, requests.rejected
        which = "All" if refused == all_ else f"{refused:,} of"
        were = f"{which} {all_:,} requests were" if all_ > 1 else "The only request was"
        first = "" if refused == 1 else ", the first"
        found.append(("refused", f"{were} refused{first} because {reason}"))
    grown = queue_grew(recorder)
    if grown is not None:
        found.append((
            "saturated",
            f"Saturated: {grown[0]:,} of {grown[1]:,} requests had not started when the last one "
            "arrived, and the queue grew until then. Latencies depend on the length of the run",
        ))  # fmt: skip
    window = summary.window
    if grown is None and isinstance(window, WindowSummary):
        within = queue_grew_within(recorder, window)
        if within is not None:
            name = "steady part" if window.found == "steady" else "window"
            found.append((
                "window",
                f"The queue grew all through the {name}: {within[0]:,} requests waited at its end, "
                f"and {within[1]:,} came in it. Waits there depend on its length",
            ))  # fmt: skip
    cache = summary.prefix_cache
    if cache.query_tokens and not cache.hit_tokens:
        found.append((
            "prefix-cache",
            f"Prefix cache: 0 of {cache.query_tokens:,} prompt tokens hit; "
            f"{_SHARED if shareable else _UNSHARED}",
        ))  # fmt: skip
    faults = summary.engine_faults
    if faults:
        found.append((
            "engine",
            f"{faults:,} times SGLang 0.5.23 would cut a second prompt in one pass and then treat "
            "the first as complete; here the second prompt waits for the next pass",
        ))  # fmt: skip
    outside = summary.outside_domain_steps
    if outside:
        found.append((
            "step-time",
            f"{outside:,} of {steps:,} steps are outside the measured range; their times are "
            "extrapolated",
        ))  # fmt: skip
    return tuple(SummaryNote(about=about, text=f"{text}.") for about, text in found)
