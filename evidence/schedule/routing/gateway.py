"""Decisions of sglang-router: round robin and cache_aware, with evictions by time."""

from evidence.schedule.routing.case import RoutingCase
from evidence.schedule.routing.contents import Letters, length_of, text
from evidence.schedule.rows import Row
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.router import RoutedRequest
from kvsim.plumbing.units import PS_PER_S


def decided(recording: RoutingCase, recorded: list[Row]) -> list[Row]:
    """A row per request: the chosen worker, and the number of open requests before the choice."""
    kind = recording.policy.replace("_", "-")
    view = FleetView(recording.workers, characters=1.0)
    ties = {"ties": "lowest"} if recording.policy == "cache_aware" else {}
    table = {"kind": kind, **ties, **recording.settings}
    router = ROUTERS.parse(table, "settings").build(view)
    letters, rows, now_ps = Letters(), [], 0
    if recording.policy == "cache_aware":  # the recorder's own requests are in the tree
        for worker in range(recording.workers):
            content = text(f"{worker}calibrate" * 3)
            probe = RoutedRequest(f"calibrate {worker}", len(content), content)
            router.decide(probe, 0)
            router.sent(probe, worker, 0)
        for worker in range(recording.workers):
            router.left(f"calibrate {worker}", 0)
    for event in recording.events:
        match event.event:
            case "request":
                prompt = event.prompt
                asked = RoutedRequest(event.id, length_of(prompt), letters.content(prompt))
                before = list(router.open)
                worker = router.decide(asked, now_ps).replica
                router.sent(asked, worker, now_ps)
                rows.append({"id": event.id, "worker": worker, "inflight": before})
            case "finish":
                router.left(event.id, now_ps)
            case "wait":
                now_ps += round(event.seconds * PS_PER_S)
            case _:
                raise recording.unknown(event)
    return rows
