"""The result in sentences, each computed from the summaries.

Two runs within one twentieth of each other count as equal. Waste is mentioned only if it takes a
twentieth of the pool or more. Runs that did not finish the same requests are not compared. More
running sequences are not praised: by Little's law a run holds more if it is fed more or if each
sequence takes longer.
"""

from collections.abc import Sequence

from kvsim.report import numbers
from kvsim.report.costs import costs
from kvsim.report.drafts import drafted
from kvsim.report.measures import same_work
from kvsim.report.names import called, listed
from kvsim.report.special import special
from kvsim.report.tier_words import behind_device
from kvsim.report.transfers import served, transferred
from kvsim.report.turn_words import tier_room, turn_lines
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary

_NOTABLE = 0.05

# How each class of waste ends the sentence "57 % of its memory ...".
WASTE_WORDS = {
    "reserved": "was reserved for tokens still to come",
    "overprovisioned": "was allocated for tokens that never came",
    "rounding": "was lost to rounding up buffer sizes",
    "transient": "held old buffers during their copy into larger ones",
    "metadata": "belonged to no request",
    "external": "lay free in gaps too small for the next request",
    "short": "lay free, but was too little for the next request",
}


# The same where most of a class is a part with a name of its own (`memory.parts`): the class, the
# part and its words.
_PARTS = (
    ("overprovisioned", "left_behind", "held tokens that a window had left behind"),
    ("reserved", "draft_slots", "was reserved for drafts"),
    (
        "rounding",
        "block_padding",
        "was padding: blocks that a group of layers or a state fills in part",
    ),
)


def paragraphs(result: Result) -> list[str]:
    """One to nine paragraphs for a reader new to these numbers."""
    if result.fleets:
        from kvsim.report.fleet_words import fleet_paragraphs  # few results have a fleet

        return fleet_paragraphs(result)
    every: Sequence[RunSummary] = [run.summary for run in result.runs]
    runs = served(every)
    parts = [
        [_setting(runs), *_outcome(runs)],
        transferred(every),
        [*behind_device(runs), *tier_room(result)],
        _saturated(runs),
        _concurrency(runs),
        costs(runs),
        drafted(runs),
        special(runs),
        [f"{each[0].upper()}{each[1:]}." for each in turn_lines(result)],
        _limit(runs),
    ]
    return [" ".join(part) for part in parts if part]


def _setting(runs: Sequence[RunSummary]) -> str:
    first = runs[0]
    memory = first.memory
    pool = numbers.size(memory.capacity_bytes)
    room = ""  # states do not grow with tokens
    if memory.capacity_tokens:
        room = f", room for {numbers.plural(memory.capacity_tokens, 'token')},"
    requests = numbers.plural(first.requests.submitted, "request")
    ran, end = "ran in", "."
    if all(map(_refused_all, runs)):
        ran, end = "came to", f", and {'was' if first.requests.submitted == 1 else 'were'} refused."
    if len(runs) == 1:
        return f"{requests} {ran} a pool of {pool}{room} under {_name(first)}{end}"
    return (
        f"The same {requests} {ran} the same pool of {pool}{room} under {len(runs)} allocators{end}"
    )


def _refused_all(run: RunSummary) -> bool:
    return 0 < run.requests.submitted == run.requests.rejected


def _outcome(runs: Sequence[RunSummary]) -> list[str]:
    """Sentences on the latencies of finished requests."""
    done = [run for run in runs if run.requests.finished]
    sentences = [f"No request finished under {_name(run)}." for run in runs if run not in done]
    if all(map(_refused_all, runs)):
        return []
    if not done:
        return sentences
    if len(done) == 1:
        return [*sentences, *_alone(done[0])]
    if not same_work(done):
        counts = [
            f"{_name(run)} {numbers.count(run.requests.finished)}"
            for run in sorted(done, key=_finished, reverse=True)
        ]
        sentences.append(
            f"They did not finish the same requests ({numbers.listed(counts)}), so their times "
            "cannot be compared."
        )
        return sentences
    fast = min(done, key=lambda run: run.makespan_s)
    slow = max(done, key=lambda run: run.makespan_s)
    if _same(fast.makespan_s, slow.makespan_s):
        who = "Both" if len(done) == 2 else f"All {len(done)}"
        sentences.append(f"{who} were done after about {numbers.seconds(slow.makespan_s)}.")
    else:
        ratio = numbers.times(slow.makespan_s / fast.makespan_s)
        sentences.append(
            f"{_name(fast)} was done after {numbers.seconds(fast.makespan_s)}, "
            f"{_name(slow)} after {numbers.seconds(slow.makespan_s)}, {ratio} as long."
        )
    found = [(_median_wait(run), _name(run)) for run in done]
    waits = [(wait, name) for wait, name in found if wait is not None]
    if len(waits) > 1:
        waits.sort(key=lambda wait: wait[0])
        (quick, quickest), (late, latest) = waits[0], waits[-1]
        if not _same(quick, late):
            sentences.append(
                f"Half of the requests {_seen(done[0])} within "
                f"{numbers.seconds(quick)} under {quickest}, and within "
                f"{numbers.seconds(late)} under {latest}."
            )
    return sentences


def _alone(run: RunSummary) -> list[str]:
    wait = _median_wait(run)
    if wait is None or not run.makespan_s:
        return []
    finished = numbers.plural(_finished(run), "request")
    return [
        f"{finished} {'was' if _finished(run) == 1 else 'were'} done after "
        f"{numbers.seconds(run.makespan_s)}; half {_seen(run)} within "
        f"{numbers.seconds(wait)}."
    ]


def _median_wait(run: RunSummary) -> float | None:
    """Median time to the first token in s; for prefill replicas, to the end of the prompt."""
    return run.e2e_s.p50 if run.ttft_s.p50 is None else run.ttft_s.p50


def _seen(run: RunSummary) -> str:
    return "had their results" if run.ttft_s.p50 is None else "saw their first token"


def _saturated(runs: Sequence[RunSummary]) -> list[str]:
    """A sentence that lists the saturated runs, where the queue grew until the last arrival."""
    full = [run for run in runs if run.noted("saturated")]
    if not full:
        return []
    names = listed([_name(run) for run in full])
    if len(full) == len(runs) and len(runs) > 1:
        names = "Both" if len(runs) == 2 else f"All {len(runs)}"
    verb = "was" if len(full) == 1 else "were"
    its = "its" if len(full) == 1 else "their"
    return [
        f"{names} {verb} saturated: the queue grew until the last request arrived. So {its} waits "
        f"depend on the length of the run, and {its} throughput is the maximum."
    ]


def _concurrency(runs: Sequence[RunSummary]) -> list[str]:
    """Sentences on how many sequences each run held, and on what the rest of the memory was used
    for.
    """
    running = [run for run in runs if run.running_mean]
    if not running:
        return []
    if len(running) == 1:
        return [_held_alone(running[0])]
    # The mark is the run that served best; of equals, the one that wasted the least.
    pace = min(run.makespan_s for run in running)
    comparable = same_work(running)
    fastest = [run for run in running if not comparable or _same(run.makespan_s, pace)]
    mark = min(fastest, key=wasted)
    sentences = [_against(run, mark, comparable) for run in running if run is not mark]
    used = numbers.percent(mark.memory.time_mean.used)
    return [*sentences, f"{_name(mark)} used {used} of the pool; {_waste(mark)}."]


def _held_alone(run: RunSummary) -> str:
    used = numbers.percent(run.memory.time_mean.used)
    return (
        f"{_name(run)} held {_sequences(run.running_mean or 0.0)} at a time on average and used "
        f"{used} of the pool; {_waste(run)}."
    )


def _against(run: RunSummary, mark: RunSummary, comparable: bool) -> str:
    """A sentence on how many sequences `run` held compared with `mark`, and why."""
    mean, top = run.running_mean or 0.0, mark.running_mean or 0.0
    if _same(mean, top):
        held = f"{_name(run)} held about as many sequences at a time as {_name(mark)}"
    elif mean < top:
        held = (
            f"{_name(run)} held {_sequences(mean)} at a time where {_name(mark)} held "
            f"{numbers.figures(top, 2)}"
        )
    else:
        longer = f", as each stayed longer under {_name(run)}" if comparable else ""
        held = (
            f"{_name(run)} held {_sequences(mean)} at a time and {_name(mark)} "
            f"{numbers.figures(top, 2)}{longer}"
        )
    return f"{held}; {_waste(run)}."


def _waste(run: RunSummary) -> str:
    """A clause on the largest class of waste in a run."""
    shares = run.memory.time_mean
    worst = max(WASTE_WORDS, key=lambda name: shares[name])
    if shares[worst] >= _NOTABLE:
        return f"{numbers.percent(shares[worst])} of its memory {_why(run, worst)}"
    if shares[worst] < 0.001:
        return "next to none of its memory was wasted"
    return f"no kind of waste took more than {numbers.percent(shares[worst])} of its memory"


def _why(run: RunSummary, name: str) -> str:
    """A clause on why memory of the ledger class `name` is wasted. If one of its parts is at least
    half of it, the clause is about this part.
    """
    share = run.memory.time_mean.of(name)
    for whole, part, words in _PARTS:
        if whole == name and 2 * run.memory.part(part) >= share:
            return words
    return WASTE_WORDS[name]


def _limit(runs: Sequence[RunSummary]) -> list[str]:
    """A sentence if the pool was never full, as such a run cannot distinguish allocators."""
    memories = [run.memory for run in runs]
    if not all(_finished(run) for run in runs) or any(
        memory.peak_allocated > 1 - _NOTABLE
        or memory.time_mean.short + memory.time_mean.external > 0
        for memory in memories
    ):
        return []
    least = numbers.percent(1 - max(memory.peak_allocated for memory in memories))
    return [
        f"Memory was never the limit here: at least {least} of the pool was free at every moment. "
        "More load, or a smaller pool, would show what the allocation costs."
    ]


def _name(run: RunSummary) -> str:
    return called(run.label)


def _finished(run: RunSummary) -> int:
    return run.requests.finished


def _sequences(mean: float) -> str:
    text = numbers.figures(mean, 2)
    return f"{text} sequence{'' if text == '1.0' else 's'}"


def wasted(run: RunSummary) -> float:
    """Time-mean share of the pool in all classes of waste."""
    return sum(run.memory.time_mean.of(name) for name in WASTE_WORDS)


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= _NOTABLE * max(abs(one), abs(other))
