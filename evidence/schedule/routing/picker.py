"""Decisions of llm-d's endpoint picker: the scores of each server."""

from evidence.schedule.routing.case import RoutingCase
from evidence.schedule.routing.contents import Letters, length_of
from evidence.schedule.rows import Row
from kvsim.fleet.load import Load
from kvsim.fleet.routers.llm_d_epp import LlmdEpp
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.router import RoutedRequest

WEIGHTS = ("queue", "kv", "prefix")


def decided(recording: RoutingCase, recorded: list[Row]) -> list[Row]:
    """A row per request. A scorer without a weight in the settings has weight 0."""
    unweighted = dict.fromkeys(WEIGHTS, 0.0)
    options = LlmdEpp.parse({"ties": "lowest", **unweighted, **recording.settings}, "settings")
    router = options.build(FleetView(recording.workers, characters=1.0))
    letters, rows = Letters(), []
    for event in recording.events:
        match event.event:
            case "request":
                prompt = event.prompt
                request = RoutedRequest(event.id, length_of(prompt), letters.content(prompt))
                decision = router.decide(request, 0)
                router.sent(request, decision.replica, 0)
                row: Row = {
                    "id": event.id,
                    "scores": [list(each) for each in decision.seen],
                    "total": list(decision.scores),
                    "worker": decision.replica,
                }
                if len(decision.tied) > 1:
                    row["tied"] = list(decision.tied)
                rows.append(row)
            case "finish":
                router.left(event.id, 0)
            case "metrics" if isinstance(event.waiting, list) and isinstance(event.kv, list):
                pairs = zip(event.waiting, event.kv, strict=True)
                router.report([Load(waiting=queue, kv_usage=usage) for queue, usage in pairs], 0)
            case _:
                raise recording.unknown(event)
    return rows
