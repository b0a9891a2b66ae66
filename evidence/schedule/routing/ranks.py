"""Decisions of servers among their data-parallel ranks: vLLM's and SGLang's."""

from evidence.schedule.routing.case import RoutingCase
from evidence.schedule.rows import Row
from kvsim.fleet.load import Load
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.router import RoutedRequest
from kvsim.fleet.routers.sglang_dp import SglangDp
from kvsim.fleet.routers.vllm_dp import VllmDp
from kvsim.plumbing.units import PS_PER_S


def vllm(recording: RoutingCase, recorded: list[Row]) -> list[Row]:
    """A row per request: the chosen rank, and the front end's counts just after the choice."""
    router = VllmDp.parse(recording.settings, "settings").build(FleetView(recording.workers))
    rows: list[Row] = []
    for event in recording.events:
        match event.event:
            case "request":
                request = RoutedRequest(event.id, 0, (), rank=event.rank)
                rank = router.decide(request, 0).replica
                router.sent(request, rank, 0)
                rows.append(
                    {
                        "id": event.id,
                        "worker": rank,
                        "view": [list(counts) for counts in router.view],
                        "inflight": list(router.open),
                        "start": router.start,
                    }
                )
            case "finish":
                router.left(event.id, 0)
            case "snapshot":
                router.report([Load(*counts) for counts in event.counts], 0)
            case _:
                raise recording.unknown(event)
    return rows


def sglang(recording: RoutingCase, recorded: list[Row]) -> list[Row]:
    """A row per request: the chosen rank, and the controller's estimates just after the choice."""
    router = SglangDp.parse(recording.settings, "settings").build(FleetView(recording.workers))
    rows: list[Row] = []
    for event in recording.events:
        now_ps = round(event.time * PS_PER_S)
        match event.event:
            case "request":
                length = event.tokens if isinstance(event.tokens, int) else 0
                request = RoutedRequest(event.id, length, (), rank=event.rank)
                rank = router.decide(request, now_ps).replica
                router.sent(request, rank, now_ps)
                rows.append(
                    {
                        "id": event.id,
                        "worker": rank,
                        "requests": list(router.requests),
                        "tokens": list(router.tokens),
                    }
                )
            case "finish":
                router.left(event.id, now_ps)
            case "load":
                loads = [
                    Load(waiting, running, tokens=tokens, written_ps=round(written * PS_PER_S))
                    for written, running, waiting, tokens in event.ranks
                ]
                router.report(loads, now_ps)
            case _:
                raise recording.unknown(event)
    return rows
