"""Notes on a run: what was left out of its numbers, and what the numbers do not hold."""

from kvsim.results.measurement import queue_grew
from kvsim.results.recorder import Recorder
from kvsim.results.summary import RunSummary, SummaryNote

_UNSHARED = "no prompt of this workload is known to begin like an earlier one"
_SHARED = (
    "what prompts of this workload could have in common fills no block, or was given up before "
    "it was asked for (kvsim cache tells which)"
)


def notes_on(
    summary: RunSummary,
    recorder: Recorder,
    *,
    shareable: bool = False,
    over_device: str | None = None,
) -> tuple[SummaryNote, ...]:
    """The notes of a run; `about` is one of the words below.

    refused: requests were refused on arrival. saturated: the queue grew as long as requests came.
    prefix-cache: the cache was on and found nothing. step-time: steps lay beyond those measured.
    engine: a fault of the engine was not followed. local-attention: tokens are kept that the engine
    would free. pool: the device cannot hold it.

    shareable: whether requests name content that other requests could hit. over_device: the
    sentence on a pool that the device cannot hold.
    """
    found = [] if over_device is None else [("pool", over_device)]
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
            f"The queue grew as long as requests came: {grown[0]:,} of {grown[1]:,} had not been "
            "started when the last one arrived. Waits tell how long the stream was",
        ))  # fmt: skip
    cache = summary.prefix_cache
    if cache.query_tokens and not cache.hit_tokens:
        found.append((
            "prefix-cache",
            f"The prefix cache was asked for {cache.query_tokens:,} prompt tokens and held none "
            f"of them: {_SHARED if shareable else _UNSHARED}",
        ))  # fmt: skip
    faults = summary.engine_faults
    if faults:
        found.append((
            "engine",
            f"{faults:,} times SGLang 0.5.23 would have cut a second prompt in one pass, and then "
            "taken the first for whole; here the second waits for the next pass",
        ))  # fmt: skip
    kept = summary.kept_chunks
    if kept is not None:
        found.append((
            "local-attention",
            f"{kept.layers} layers attend within chunks of {kept.chunk_tokens:,} tokens: "
            "vLLM gives back those before the current one (kvsim memory counts so), here every "
            "token is kept",
        ))  # fmt: skip
    outside = summary.outside_domain_steps
    if outside:
        found.append((
            "step-time",
            f"{outside:,} of {steps:,} steps were longer or larger than those the step time was "
            "measured on; their time is extrapolated",
        ))  # fmt: skip
    return tuple(SummaryNote(about=about, text=f"{text}.") for about, text in found)
