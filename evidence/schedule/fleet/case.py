"""A recorded fleet as input: vLLM schedulers on one virtual clock, and the router before them."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from evidence.schedule.recording import RecordedCase
from evidence.schedule.routing.contents import text
from evidence.schedule.rows import Row
from evidence.schedule.ticks import TICK_PS, CaseCost, TickCost
from evidence.schedule.vllm.engine_settings import VllmEngine
from evidence.schedule.vllm.rows import VllmRows
from evidence.schedule.vllm.schedule import VllmRequest
from kvsim.engine.speculation.acceptance import RecordedAcceptance
from kvsim.fleet.fleet import Fleet, FleetPart
from kvsim.fleet.reports import Published
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import FleetView
from kvsim.request import Stream

KINDS = {"vllm_dp_lb": "vllm-dp"}  # what recordings call a router otherwise


class FleetCaseRequest(VllmRequest):
    """A request to the fleet. text: what the router reads instead of the prompt's token ids."""

    text: str | None = Field(None, min_length=1)


class FleetCase(RecordedCase):
    """Replicas of one engine, a router, and requests; see reports/schedules/README.md.

    Its rows: one per routing decision, one per publication of vLLM's coordinator, one with the
    fleet's hits, then the rows of each replica in order.
    """

    recognised_by: ClassVar[str] = "replicas"

    replicas: int = Field(ge=1, le=4096)
    router: dict[str, Any]
    engine: VllmEngine
    cost: CaseCost
    requests: tuple[FleetCaseRequest, ...]

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return "replicas" in table and "router" in table

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        """The parts of a recording, as rows."""
        replicas = expectation.get("rows")
        if not isinstance(replicas, Sequence):
            return None
        decisions = expectation.get("decisions", [])
        rows: list[Row] = [_decision(*decision) for decision in decisions]
        rows += [_published(*each) for each in expectation.get("publications", [])]
        rows.append({"hit_tokens": expectation.get("hit_tokens")})
        for number, steps in enumerate(replicas):
            rows += [{"replica": number, **row} for row in steps]
        return rows

    def simulated(self, recorded: list[Row]) -> list[Row]:
        spec = self.engine.replica_spec(RecordedAcceptance(()))
        options = ROUTERS.parse(self._router_table(), "router")
        view = FleetView(self.replicas, block_size=self.engine.block_size, characters=1.0)
        reports = options.reports(view)
        if isinstance(reports, Published):
            reports.unread_lost = True
        by_group = self.engine.as_served and len(self.engine.kv_groups) > 1
        observers = [
            VllmRows(deque(), stall_once=False, by_group=by_group) for _ in range(self.replicas)
        ]
        requests = [each for request in self.requests for each in request.requests()]
        requests.sort(key=lambda request: request.arrival_ps)
        texts = {
            name: text(request.text)
            for request in self.requests
            if request.text is not None
            for name in request.names()
        }
        fleet = Fleet(
            [FleetPart(spec, TickCost(self.cost))] * self.replicas,
            options.build(view),
            Stream(tuple(requests)),
            reports=reports,
            report_interval_ps=options.report_interval_ps,
            observer_of=observers.__getitem__,
            refuse=False,
            texts=texts,
        )
        fleet.env.run()
        rows = [_decision(r.time_ps // TICK_PS, r.id, r.replica) for r in fleet.routed]
        if isinstance(reports, Published):
            rows += [_published(p.time_ps // TICK_PS, p.counts) for p in reports.publications]
        steps = [row for observer in observers for row in observer.rows]
        hits = sum(hit for row in steps for _, hit, *_ in row["admitted"])
        rows.append({"hit_tokens": hits})  # those of preempted requests that come back included
        for number, observer in enumerate(observers):
            rows += [{"replica": number, **row} for row in observer.rows]
        return rows

    def _router_table(self) -> dict[str, Any]:
        table = dict(self.router)
        policy = table.pop("policy", None)
        kind = KINDS.get(policy, policy.replace("_", "-")) if isinstance(policy, str) else policy
        ties = {"ties": "lowest"} if kind == "cache-aware" else {}
        return {"kind": kind, **ties, **table}


def _decision(time: int, id: str, replica: int) -> Row:
    return {"time": time, "id": id, "replica": replica}


def _published(time: int, counts: Sequence[Sequence[float]]) -> Row:
    return {"published": time, "counts": [list(each) for each in counts]}
