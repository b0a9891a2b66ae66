"""Routers with random choices: how often each worker was chosen, against its probability."""

from collections import Counter
from itertools import groupby

from evidence.schedule.routing.case import RoutingCase
from evidence.schedule.rows import Row
from kvsim.fleet.load import Load
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.power_of_two import PowerOfTwo

LEAST_CHANCE = 1e-4  # of counts as far from their expectation as these


def plausible(counts: list[int], chances: list[float]) -> bool:
    """Whether these counts are plausible for these probabilities, by a chi-square test."""
    from scipy.stats import chisquare

    total, whole = sum(counts), sum(chances)
    if any(count and not chance for count, chance in zip(counts, chances, strict=True)):
        return False
    pairs = [(count, chance) for count, chance in zip(counts, chances, strict=True) if chance]
    if len(pairs) < 2 or not total:
        return True
    expected = [chance / whole * total for _, chance in pairs]
    found = chisquare([count for count, _ in pairs], expected)
    return float(found.pvalue) >= LEAST_CHANCE


def drawn(recording: RoutingCase, recorded: list[Row]) -> list[Row]:
    """Rows of choices: in a phase where the recorded choices are plausible for the policy, the
    recorded ones; otherwise the policy's own.

    A phase ends with a report.
    """
    view = FleetView(recording.workers)
    router = PowerOfTwo(load="reported").build(view) if recording.policy != "random" else None
    chosen = {row["id"]: row["worker"] for row in recorded}
    phase, phases, chances = 0, {}, {}
    opened, rows = [0] * recording.workers, []
    where: dict[str, int] = {}
    for event in recording.events:
        match event.event:
            case "request":
                chances[phase] = router.probabilities() if router else [1.0] * recording.workers
                phases[event.id] = phase
                worker = chosen.get(event.id, 0)
                rows.append({"id": event.id, "worker": worker, "inflight": list(opened)})
                where[event.id] = worker
                opened[worker] += 1
            case "finish":
                opened[where[event.id]] -= 1
            case "load" if router is not None and isinstance(event.tokens, list):
                router.report([Load(tokens=each) for each in event.tokens], 0)
                phase += 1
            case "wait":
                pass
            case _:
                raise recording.unknown(event)
    for number, group in groupby(rows, key=lambda row: phases[row["id"]]):
        members = list(group)
        counted = Counter(row["worker"] for row in members)
        counts = [counted[worker] for worker in range(recording.workers)]
        if not plausible(counts, chances[number]):
            for row in members:
                row["worker"] = max(range(recording.workers), key=chances[number].__getitem__)
    return rows
