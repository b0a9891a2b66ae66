"""Sentences on a baseline: its bottleneck, the evidence, and whether other replicates agree."""

import math

from kvsim.report import numbers
from kvsim.report.numbers import count, percent
from kvsim.whatif.advice.baseline import Baseline, Binding, Headroom, LeastPool, LoadReading
from kvsim.whatif.intervals import ratio_text


def baseline_sentences(
    baseline: Baseline, goal: str, others: str | None, rate_unit: str, changed: bool = False
) -> list[str]:
    """Sentences on the baseline. goal: name of its number. others: name of the replicates of
    `again` (`5 more seeds`); None if nothing is random. changed: whether a better setting was
    found, for which the smallest pool was searched.
    """
    load, again = baseline.load, baseline.again
    sentences = [f"{head(load)}: {evidence(load)}."]
    if others is not None:
        agrees = head(load) == head(again)
        verb = "say the same" if agrees else f"say otherwise ({_lower(head(again))})"
        sentences.append(f"{others}, on which nothing was searched, {verb}: {evidence(again)}.")
    if baseline.headroom is not None:
        sentences.append(_headroom(baseline.headroom, rate_unit))
    sentences.append(_twice(baseline, goal))
    if baseline.pool is not None:
        sentences.append(_pool(baseline.pool, goal, changed))
    return sentences


def head(load: LoadReading) -> str:
    """The bottleneck in a word or two."""
    if load.binds is not None:
        text = binds(load.binds)
        text = text if load.binds in ("limit", "adapters") else text[0].upper() + text[1:]
    elif load.touches_memory:
        text = "Nothing binds to speak of, memory now and then"
    else:
        text = "Memory never binds"
    return text if load.keeps_up else f"It cannot keep up, and {_lower(text)}"


def binds(what: Binding) -> str:
    """The clause that names a bottleneck: `memory binds`."""
    return {
        "memory": "memory binds",
        "limit": "max_num_seqs binds",
        "step": "the tokens of a step bind",
        "adapters": "max_loras binds",
        "encoder": "the encoder's budget or cache binds",
        "loads": "loads from the tiers bind",
    }[what]


def evidence(load: LoadReading) -> str:
    """The numbers that support `head`: peak of the pool, preemptions, waits."""
    parts = {
        "for memory": load.waits_for_memory,
        "for max_num_seqs": load.waits.limit,
        "for their turn in a step": load.waits.step,
        "for a slot of an adapter": load.waits.adapters,
        "for the encoder": load.waits.encoder,
        "for content that loads": load.waits.loads,
    }
    causes = ", ".join(
        f"{percent(share)} {name}" for name, share in parts.items() if share >= 0.0005
    )
    waited = f"{percent(load.waits.total)} of their time" + (f" ({causes})" if causes else "")
    taken = f"at its fullest {percent(load.peak)} of the pool is taken"
    preempted = f"{numbers.plural(load.preemptions, 'preemption')}"
    return f"{taken}, {count(load.requests)} requests have {preempted} and wait {waited}"


def _headroom(room: Headroom, rate_unit: str) -> str:
    free = f"{numbers.figures(room.factor)} times this rate"
    if room.beyond is None:
        return f"Nothing binds at {free} either."
    first = room.beyond.binds
    ends = "it no longer keeps up with its arrivals" if first is None else f"{binds(first)} first"
    return (
        f"At {free} nothing binds; at {numbers.figures(room.bound_at)} times "
        f"({numbers.figures(room.rate_per_s)} {rate_unit}) {ends}, with "
        f"{percent(room.beyond.peak)} of the pool taken at its fullest."
    )


def _twice(baseline: Baseline, goal: str) -> str:
    of = baseline.twice
    if of is None:
        return f"What twice the pool would change in {goal} is unknown."
    if of.same:
        return "Doubling the pool alone changes nothing."
    seen = "" if of.seen else ": no difference seen"
    return f"Doubling the pool alone changes {goal} by {ratio_text(of)}{seen}."


def _pool(pool: LeastPool, goal: str, changed: bool) -> str:
    share = ""
    if pool.utilization is not None:
        share = f" (gpu_memory_utilization {math.ceil(1000 * pool.utilization) / 1000:g})"
    unseen = (
        "" if pool.held_out is None else f", and by {ratio_text(pool.held_out)} on those others"
    )
    at = "the best setting found" if changed else "this setting"
    return (
        f"With {at} {count(pool.tokens)} of the pool's {count(pool.of)} tokens suffice{share}: "
        f"{goal} is worse by 1 % at most in the search{unseen}. The engine starts with no fewer "
        "than one sequence of max_model_len takes."
    )


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
