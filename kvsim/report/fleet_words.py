"""Sentences on a fleet, each computed from its numbers."""

from collections.abc import Iterator, Sequence

from kvsim.report.numbers import count, listed, number, percent, plural, seconds
from kvsim.report.tier_words import behind_device
from kvsim.report.transfers import served, transferred
from kvsim.results.fleet import FleetSummary
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary

ALIKE = 0.95  # of the fleet's makespan: a replica that ran so long compares with the others
UNEVEN = 1.2  # times the mean: a replica that had so much more is named


def fleet_paragraphs(result: Result) -> list[str]:
    """Paragraphs on a fleet: the outcome under each allocator, then how each router spread the
    requests and what the caches hit.
    """
    fleets = result.fleets
    outcomes = [_outcome(fleet) for fleet in fleets]
    details = [part for each in fleets for part in (_placed(each, result), _cached(each))]
    return [" ".join(part) for part in map(list, (*outcomes, *details)) if part]


def _outcome(fleet: FleetSummary) -> Iterator[str]:
    """Sentences on the results and costs of all replicas together."""
    requests, routing = fleet.requests, fleet.routing
    replicas = "1 replica" if fleet.replicas == 1 else f"{count(fleet.replicas)} replicas"
    yield (
        f"{replicas} of “{fleet.label}” behind the {routing.router} router finished "
        f"{count(requests.finished)} of {count(requests.submitted)} requests in "
        f"{seconds(fleet.makespan_s)}, "
        f"{number(fleet.output_tokens_per_s)} output tokens per second."
    )
    if fleet.within is not None and fleet.goodput_per_s is not None:
        yield (
            f"{percent(fleet.within)} of the requests kept every objective: a goodput of "
            f"{number(fleet.goodput_per_s)} requests per second."
        )
    yield f"The run took {number(fleet.gpu_hours)} GPU-hours{_price(fleet)}."


def _placed(fleet: FleetSummary, result: Result) -> Iterator[str]:
    """Sentences on how the router distributed requests, and how evenly."""
    routing = fleet.routing
    sent = sorted(routing.decisions.items(), key=lambda item: -item[1])
    ways = listed([f"{plural(times, 'request')} by “{why}”" for why, times in sent])
    yield f"The router placed {ways}."
    if routing.waves is not None:
        waves = routing.waves
        all_steps = max(1, waves.steps * fleet.replicas)
        yield (
            f"All replicas stepped together, {count(waves.steps)} times in {count(waves.waves)} "
            f"waves; {percent(waves.dummy_steps / all_steps)} of their steps computed nothing."
        )
    yield from _balance(fleet, result)
    yield from _own_times(fleet, result)
    yield from _changes(fleet)


def _cached(fleet: FleetSummary) -> Iterator[str]:
    """Sentences on prefix caches, tiers and transfers between replicas."""
    cache, routing = fleet.prefix_cache, fleet.routing
    if cache.query_tokens:
        share = cache.hit_tokens / cache.query_tokens
        yield f"Prefix caches held {percent(share)} of the prompt tokens that were looked up."
    if cache.query_tokens and routing.regret_tokens:
        regret = routing.regret_tokens / cache.query_tokens
        yield (
            f"Another replica had {count(routing.regret_tokens)} tokens more of the prompts "
            f"cached than the chosen one, {percent(regret)} of all."
        )
    elif cache.query_tokens and routing.regret_tokens is not None and fleet.replicas > 1:
        yield "No other replica had more of a prompt cached than the chosen one."
    yield from behind_device([fleet])
    yield from transferred([fleet])


def _price(fleet: FleetSummary) -> str:
    """The cost of the GPU-hours, and of a million output tokens, if a price is given."""
    if fleet.cost is None:
        return ""
    tokens = (fleet.output_tokens_per_s or 0.0) * fleet.makespan_s
    each = f", {number(fleet.cost / tokens * 1e6)} per million output tokens" if tokens else ""
    return f", at {fleet.cost:,.4g}{each}"


def _changes(fleet: FleetSummary) -> Iterator[str]:
    """Sentences on the number of replicas over time, and on replicas that died."""
    changes = fleet.changes
    if changes is None:
        return
    yield (
        f"There were {count(changes.replicas_peak)} replicas at once at most, "
        f"{number(changes.replicas_mean)} on average."
    )
    died = sum(life.ended == "died" for life in changes.lives)
    if died:
        yield (
            f"{count(died)} died, and {count(changes.moved_requests)} requests started again "
            "elsewhere."
        )


def _balance(fleet: FleetSummary, result: Result) -> Iterator[str]:
    uneven = fleet.imbalance.requests
    if fleet.replicas == 1 or uneven is None:
        return
    sent = _sent(fleet, result)
    most = max(range(len(sent)), key=sent.__getitem__)
    if uneven < UNEVEN:
        fewest = "" if min(sent) == max(sent) else f"{count(min(sent))} to "
        yield f"Each replica got {fewest}{count(max(sent))} requests."
        return
    yield (
        f"Replica {most} got {count(sent[most])} requests, {uneven:.2g} times the mean; "
        f"the fewest were {count(min(sent))}."
    )


def _own_times(fleet: FleetSummary, result: Result) -> Iterator[str]:
    """A remark, if replicas' makespans differ much, that replicas' numbers do not add up to the
    fleet's.
    """
    spans = [run.makespan_s for run in _replicas(fleet, result) if run.makespan_s]
    if len(spans) < 2 or min(spans) > ALIKE * fleet.makespan_s:
        return
    yield (
        f"Rates and means of each replica are over its own makespan, {seconds(min(spans))} to "
        f"{seconds(max(spans))}. Those of the fleet are over {seconds(fleet.makespan_s)}, so the "
        "replicas do not add up to it."
    )


def _sent(fleet: FleetSummary, result: Result) -> Sequence[int]:
    """Number of requests routed to each replica of the fleet, by index."""
    return [run.requests.submitted for run in _replicas(fleet, result)]


def _replicas(fleet: FleetSummary, result: Result) -> Sequence[RunSummary]:
    """The fleet's replicas, by index."""
    at = 0
    for each in result.fleets:
        if each.label == fleet.label:
            break
        at += each.replicas
    return served([run.summary for run in result.runs])[at : at + fleet.replicas]
