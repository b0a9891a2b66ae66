"""Output of `kvsim cache`: tables of hit rates, and the JSON answer."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kvsim.plumbing.units import GIB
from kvsim.report.numbers import NOTHING, count, number
from kvsim.whatif.cache_curve.hit_figure import hit_figure
from kvsim.whatif.cache_curve.policies import PolicyRun
from kvsim.whatif.cache_curve.question import CacheAnswer
from kvsim.whatif.cache_curve.retention import RetentionRun, bought
from kvsim.whatif.findings import Findings, FindingsFigure, FindingsTable, Section

_COSTS = ("preempted", "mean TTFT, s", "requests/s")


def cache_findings(answer: CacheAnswer, scenario: Mapping[str, Any]) -> Findings:
    """Tables and sentences of an answer. scenario: tables of the simulated scenario."""
    figure = FindingsFigure(
        "By the size of the cache",
        "Prompt tokens found. The dotted line is the scenario's own pool, which finds no more than "
        "this, because running sequences hold blocks too.",
        partial(hit_figure, answer),
        lead=True,
    )
    tables = [_sizes_table(answer)]
    if answer.retention:
        tables.append(_retention_table(answer.retention, _buys(answer)))
    if answer.policies:
        tables.append(_policies_table(answer.policies))
    facts = [("prompt tokens", count(answer.query_tokens))]
    title = "What a prefix cache of each size would find"
    sections: list[Section] = [figure, *tables]
    return Findings(title, facts, [_verdict(answer)], sections, scenario, _data(answer))


def _verdict(answer: CacheAnswer) -> str:
    """Sentences on the hit rate of a cache of the pool's size, and on the size that hits
    everything.
    """
    found = (
        f"A cache as large as the pool ({answer.pool_tokens:,} tokens) finds at most "
        f"{_percent(answer.pool_ratio)} of the prompt tokens"
    )
    if answer.unlimited_tokens <= answer.pool_tokens:
        return f"{found}: all that any cache would find."
    return (
        f"{found}; one of {answer.unlimited_tokens:,} tokens finds all that can be found, "
        f"{_percent(answer.unlimited)}."
    )


def _buys(answer: CacheAnswer) -> str:
    return bought(list(answer.retention), answer.pool_ratio)


def _sizes_table(answer: CacheAnswer) -> FindingsTable:
    belady = any(each.belady is not None for each in answer.sizes)

    tiers = any(each.tier is not None for each in answer.sizes)

    def behind(tokens: int, found: float, tier: float) -> list[str]:
        gib = f"{tokens * answer.token_bytes / GIB:,.1f}"
        size = gib if tokens > answer.pool_tokens else NOTHING
        return [_percent(found - tier), _percent(tier), size]

    rows = [
        (
            f"{each.tokens:,}" + (" (the pool)" if each.tokens == answer.pool_tokens else ""),
            _percent(each.lru),
            *([] if each.belady is None else [_percent(each.belady)]),
            *([] if each.tier is None else behind(each.tokens, each.lru, each.tier)),
        )
        for each in answer.sizes
    ]
    largest = answer.unlimited_tokens
    enough = f"{largest:,} and more" if largest else "unlimited"
    last = [enough, *[_percent(answer.unlimited)] * (2 if belady else 1)]
    if tiers:
        last += behind(largest, answer.unlimited, answer.unlimited - answer.pool_ratio)
    rows.append(tuple(last))
    heads = (
        *("cache, tokens", "LRU", *(["Belady"] if belady else [])),
        *(("on the device", "in a tier", "tier, GiB") if tiers else ()),
    )
    note = f"Of {count(answer.query_tokens)} prompt tokens, in blocks of {answer.block_tokens:,}."
    if answer.replicas > 1:
        note += (
            f" Each of the {count(answer.replicas)} replicas has a cache of this size, for the "
            "prompts that the router sends to it."
        )
    if tiers:
        note += " A cache larger than the pool is a tier that copies all that is computed."
    note = "\n".join(filter(None, [note, answer.why]))
    return FindingsTable("Prompt tokens found", note, heads, rows)


def _costs(run: PolicyRun | RetentionRun) -> tuple[str, ...]:
    """Preemptions, throughput and latencies of a run, as texts for the columns _COSTS."""
    summary = run.summary
    ttft, rate = number(summary.ttft_s.mean), number(summary.requests_per_s)
    return f"{summary.preemptions:,}", ttft, rate


def _retention_table(runs: Sequence[RetentionRun], buys: str) -> FindingsTable:
    rows = [
        (str(run.interval), *map(_percent, (run.ratio, run.cached, run.left)), *_costs(run))
        for run in runs
    ]
    heads = ("retention", "found", "pool cached", "with windows, states", *_COSTS)
    return FindingsTable("What is kept of windows and states", buys, heads, rows)


def _policies_table(runs: Sequence[PolicyRun]) -> FindingsTable:
    rows = [
        (
            run.policy,
            _percent(run.ratio),
            NOTHING if run.most_ratio is None else _percent(run.most_ratio),
            *_costs(run),
        )
        for run in sorted(runs, key=lambda run: run.ratio, reverse=True)
    ]
    note = (
        "Full runs of the scenario at its own pool, the best first. Belady: what could have been "
        "found at most in the order in which that run asked, had its content all of the pool."
    )
    heads = ("eviction policy", "found", "Belady", *_COSTS)
    return FindingsTable("Under the exact schedule", note, heads, rows)


def _data(answer: CacheAnswer) -> dict[str, Any]:
    """The JSON answer: shares as fractions, times in seconds."""
    data: dict[str, Any] = {
        "block_tokens": answer.block_tokens,
        "query_tokens": answer.query_tokens,
        "pool_tokens": answer.pool_tokens,
        **({"replicas": answer.replicas} if answer.replicas > 1 else {}),
        "token_bytes": answer.token_bytes,
        "unlimited": answer.unlimited,
        "unlimited_tokens": answer.unlimited_tokens,
        "sizes": [
            {key: value for key, value in each._asdict().items() if value is not None}
            for each in answer.sizes
        ],
    }
    if answer.policies:
        data["policies"] = [run.as_dict() for run in answer.policies]
    if answer.why is not None:
        data["why"] = answer.why
    if answer.retention:
        data["retention"] = [run.as_dict() for run in answer.retention]
        data["retention_buys"] = _buys(answer)
    return data


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
