"""What the numbers say, in plain words: every sentence is computed from the summaries.

Nothing is said that the numbers do not hold: two runs within one twentieth of each other count as
equal, and waste is named only where it takes a twentieth of the pool or more.
"""

from collections.abc import Sequence
from typing import Any

from kvsim.report import numbers
from kvsim.report.measures import Summary, hit_fraction
from kvsim.results.result import Result

_NOTABLE = 0.05

# How each class of waste ends the sentence "57 % of its memory ...".
_WASTE = {
    "reserved": "was set aside for tokens still to come",
    "overprovisioned": "was reserved for tokens that never came",
    "rounding": "went into rounding buffers up to the sizes it hands out",
    "transient": "held old buffers while they were copied into larger ones",
    "metadata": "was bookkeeping",
    "external": "lay free in gaps too small for the next request",
    "short": "lay free, but was too little for the next request",
}


def paragraphs(result: Result) -> list[str]:
    """One to four paragraphs for a reader who has not seen a single number yet."""
    runs: Sequence[Summary] = [run.summary for run in result.runs]
    parts = [
        [_setting(runs), *_concurrency(runs)],
        _outcome(runs),
        _costs(runs),
        _limit(runs),
    ]
    return [" ".join(part) for part in parts if part]


def _setting(runs: Sequence[Summary]) -> str:
    first = runs[0]
    memory: dict[str, Any] = first["memory"]
    pool = numbers.size(memory["capacity_bytes"])
    room = numbers.plural(memory["capacity_tokens"], "token")
    requests = numbers.plural(first["requests"]["submitted"], "request")
    if len(runs) == 1:
        return f"{requests} met a pool of {pool}, room for {room}, under {first['label']}."
    return (
        f"The same {requests} met the same pool of {pool}, room for {room}, "
        f"under {len(runs)} allocators."
    )


def _concurrency(runs: Sequence[Summary]) -> list[str]:
    """How many sequences each run held, and what kept it from holding more."""
    running = [run for run in runs if run["running_mean"]]
    if not running:
        return []
    most = max(float(run["running_mean"]) for run in running)
    # Of those that held the most, the one that wasted the least sets the mark.
    best = min((run for run in running if _same(run["running_mean"], most)), key=_wasted)
    said: list[str] = []
    compared = False
    for run in running:
        if run is best:
            continue
        label, mean, top = run["label"], run["running_mean"], best["running_mean"]
        if _same(mean, top):
            start = f"{label} held about as many sequences at a time as {best['label']}"
        elif compared:
            start = f"{label} held {numbers.figures(mean, 2)}"
        else:
            compared = True
            start = (
                f"{label} held {_sequences(mean)} at a time where {best['label']} held "
                f"{numbers.figures(top, 2)} ({_more(top / mean)})"
            )
        said.append(f"{start}; {_waste(run)}.")
    return [*said, _of_best(best, alone=len(running) == 1)]


def _of_best(run: Summary, alone: bool) -> str:
    used = numbers.percent(run["memory"]["time_mean"]["used"])
    held = f"held {_sequences(run['running_mean'])} at a time on average and " if alone else ""
    return f"{run['label']} {held}kept {used} of the pool at work; {_waste(run)}."


def _waste(run: Summary) -> str:
    """The largest waste of a run as a clause."""
    shares: dict[str, float] = run["memory"]["time_mean"]
    worst = max(_WASTE, key=lambda name: shares[name])
    if shares[worst] < _NOTABLE:
        return f"no kind of waste took more than {numbers.percent(shares[worst])} of its memory"
    return f"{numbers.percent(shares[worst])} of its memory {_WASTE[worst]}"


def _outcome(runs: Sequence[Summary]) -> list[str]:
    """What a user of the service would have noticed."""
    done = [run for run in runs if run["requests"]["finished"]]
    said = [f"No request finished under {run['label']}." for run in runs if run not in done]
    if len(done) < 2:
        return said
    fast = min(done, key=lambda run: float(run["makespan_s"]))
    slow = max(done, key=lambda run: float(run["makespan_s"]))
    if _same(fast["makespan_s"], slow["makespan_s"]):
        who = "Both" if len(done) == 2 else f"All {len(done)}"
        said.append(f"{who} were done after about {numbers.seconds(slow['makespan_s'])}.")
    else:
        ratio = numbers.times(slow["makespan_s"] / fast["makespan_s"])
        said.append(
            f"{fast['label']} was done after {numbers.seconds(fast['makespan_s'])}, "
            f"{slow['label']} after {numbers.seconds(slow['makespan_s'])}, {ratio} as long."
        )
    waits = [run for run in done if run["ttft_s"]["p50"] is not None]
    if len(waits) > 1:
        waits.sort(key=lambda run: float(run["ttft_s"]["p50"]))
        quick, late = waits[0], waits[-1]
        if not _same(quick["ttft_s"]["p50"], late["ttft_s"]["p50"]):
            said.append(
                f"Half of the requests saw their first token within "
                f"{numbers.seconds(quick['ttft_s']['p50'])} under {quick['label']}, and within "
                f"{numbers.seconds(late['ttft_s']['p50'])} under {late['label']}."
            )
    return said


def _costs(runs: Sequence[Summary]) -> list[str]:
    """What the runs paid on the way."""
    refused = [run["requests"]["rejected"] for run in runs]
    alike = len(runs) > 1 and refused[0] and len(set(refused)) == 1
    said = [f"Each {_refused(refused[0])}."] if alike else []
    for run in runs:
        paid = _paid(run)
        if run["requests"]["rejected"] and not alike:
            paid.insert(0, _refused(run["requests"]["rejected"]))
        if paid:
            said.append(f"{run['label']} {numbers.listed(paid)}.")
    return said


def _refused(rejected: int) -> str:
    return f"refused {numbers.plural(rejected, 'request')} that could never fit"


def _paid(run: Summary) -> list[str]:
    paid = []
    if run["preemptions"]:
        times = numbers.plural(run["preemptions"], "time")
        again = run["recomputed_tokens"]
        lost = f" ({numbers.plural(again, 'token')} computed again)" if again else ""
        paid.append(f"preempted sequences {times}{lost}")
    if run["copied_bytes"]:
        paid.append(f"copied {numbers.size(run['copied_bytes'])} of KV on the device")
    if run["swapped_bytes"]:
        paid.append(f"swapped {numbers.size(run['swapped_bytes'])} of KV to the host and back")
    hits = hit_fraction(run)
    if hits:
        paid.append(f"found {numbers.percent(hits)} of its prompt tokens in the prefix cache")
    return paid


def _limit(runs: Sequence[Summary]) -> list[str]:
    """Say so where the pool was never full: then it cannot tell the allocators apart."""
    memories = [run["memory"] for run in runs]
    if any(
        memory["peak_allocated"] > 1 - _NOTABLE
        or memory["time_mean"]["short"] + memory["time_mean"]["external"] > 0.001
        for memory in memories
    ):
        return []
    least = numbers.percent(1 - max(memory["peak_allocated"] for memory in memories))
    return [
        f"Memory was never the limit here: at least {least} of the pool was free at every moment. "
        "More load, or a smaller pool, would show what the allocation costs."
    ]


def _sequences(mean: float) -> str:
    text = numbers.figures(mean, 2)
    return f"{text} sequence{'' if text == '1.0' else 's'}"


def _more(ratio: float) -> str:
    return f"{numbers.times(ratio)} as many" if ratio >= 1.5 else f"{100 * (ratio - 1):.0f} % more"


def _wasted(run: Summary) -> float:
    return sum(float(run["memory"]["time_mean"][name]) for name in _WASTE)


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= _NOTABLE * max(abs(one), abs(other))
