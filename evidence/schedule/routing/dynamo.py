"""Decisions of Dynamo's router: the cost of each worker, and its terms."""

from collections.abc import Sequence

from evidence.schedule.routing.case import RoutingCase, RoutingEvent
from evidence.schedule.routing.contents import length_of, tokens
from evidence.schedule.routing.draws import plausible
from evidence.schedule.rows import Row
from kvsim.fleet.routers.dynamo_kv import DynamoKv
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.router import RoutedRequest
from kvsim.plumbing.units import PS_PER_S

NEW_NAMES = {
    "temperature": "router_temperature",
    "overlap_score_weight": "prefill_load_scale",
}


def decided(recording: RoutingCase, recorded: list[Row]) -> list[Row]:
    """A row per request or series of random choices. If the router chooses randomly (temperature),
    the simulation continues with the recorded worker.
    """
    settings = {NEW_NAMES.get(key, key): value for key, value in recording.settings.items()}
    options = DynamoKv.parse({"ties": "lowest", **settings}, "settings")
    router = options.build(FleetView(recording.workers, block_size=recording.block_size))
    chosen = {row["id"]: row for row in recorded}
    asked: dict[str, RoutedRequest] = {}
    where: dict[str, int] = {}
    rows: list[Row] = []
    now_ps = 0
    for event in recording.events:
        match event.event:
            case "request":
                request = asked[event.id] = _request(event)
                decision = router.decide(request, now_ps)
                worker = decision.replica
                if options.router_temperature:
                    worker = chosen.get(event.id, {}).get("worker", worker)
                costs, seen = _rounded(decision.scores), [list(each) for each in decision.seen]
                row: Row = {"id": event.id, "worker": worker, "cost": costs, "view": seen}
                if len(decision.tied) > 1:
                    row["tied"] = list(decision.tied)
                rows.append(row)
                router.sent(request, worker, now_ps)
                where[event.id] = worker
            case "sample":
                request = _request(event)
                costs, terms = router.costs(request, now_ps)
                chances = router.chances(costs)
                counts = chosen.get(event.id, {}).get("counts", [])
                if not plausible(counts, chances):
                    counts = [round(event.times * chance) for chance in chances]
                rows.append(
                    {
                        "id": event.id,
                        "cost": _rounded(costs),
                        "view": [list(each) for each in terms],
                        "probability": [round(chance, 6) for chance in chances],
                        "counts": counts,
                    }
                )
            case "prefilled":
                router.prefilled(event.id, now_ps)
            case "finish":
                router.left(event.id, now_ps)
            case "stored" | "removed":
                first, last = event.blocks
                blocks = router.names.of(asked[event.of].content)[first:last]
                change = router.stored if event.event == "stored" else router.removed
                change(where[event.of], blocks, now_ps)
            case "wait":
                now_ps += round(event.seconds * PS_PER_S)
            case _:
                raise recording.unknown(event)
    return rows


def _request(event: RoutingEvent) -> RoutedRequest:
    return RoutedRequest(event.id, length_of(event.prompt), tokens(event.prompt))


def _rounded(costs: Sequence[float]) -> list[float]:
    """Costs rounded as in the recording."""
    return [round(cost, 9) for cost in costs]
