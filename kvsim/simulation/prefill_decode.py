"""Simulate a scenario with `[disaggregation]`: both sides from its tables, one deployment for each
allocator.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from kvsim.engine.connectors import TIERS
from kvsim.engine.replica import Replica, ReplicaSpec
from kvsim.engine.transfers.handoff import DrawnRequests, Handoff, TransferSpec
from kvsim.engine.transfers.sglang import RESERVED_DECODE_TOKENS, SglangHandoff
from kvsim.engine.transfers.vllm import NixlHandoff
from kvsim.fleet.disaggregation import SIDES, DisaggregationOptions, SideOptions
from kvsim.fleet.members import FleetMember
from kvsim.fleet.prefill_decode import DeploymentSide, PrefillDecode, PrefillDecodePart
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S, seconds_from_ps
from kvsim.results.departures import Departures
from kvsim.results.link_copies import TRANSFERS, tier_links
from kvsim.results.metrics import summarise
from kvsim.results.recorder import Recorder
from kvsim.results.result import Run
from kvsim.results.summary import RunSummary
from kvsim.results.summary_beyond import TransferSummary
from kvsim.scenario import Scenario
from kvsim.simulation.pooled_totals import Pooled
from kvsim.step_time.form import StepTime
from kvsim.support.parts import ServerParts
from kvsim.support.table import check

HANDOFFS: dict[str, type[Handoff]] = {"vllm": NixlHandoff, "sglang": SglangHandoff}
REPLACED = ("memory",)  # whose keys exclude each other


def side_scenario(scenario: Scenario, side: str) -> Scenario:
    """The scenario of only one side's replicas; only prefill replicas have the tiers."""
    options = scenario.disaggregation
    assert options is not None
    elsewhere = {"disaggregation", "fleet", "workload", "window"}
    if side == "decode":
        elsewhere.add("tier")
    tables = {key: table for key, table in scenario.given.items() if key not in elsewhere}
    chosen: SideOptions = getattr(options, side)
    for name, table in chosen.tables().items():
        if name == "allocator":
            tables[name] = [_overlaid(each, table, name) for each in tables[name]]
        else:
            tables[name] = _overlaid(tables.get(name, {}), table, name)
    return Scenario.from_table(tables, scenario.folder)


def _check_tiers(scenario: Scenario) -> None:
    """Raise InputError for tiers that prefill replicas do not support."""
    for place, tier in enumerate(scenario.tier):
        shared = f"tier.{place}.{tier.shared_key}" if tier.shared_key else ""
        asked = ServerParts(
            tiers=(TIERS.name_of(tier),), place=place, serves=tier.serves, shared=shared
        )
        check(asked._replace(transfers="apart"))


def _overlaid(table: Mapping[str, Any] | str, over: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Merge `over` into `table`; if `over` names another kind or model, it replaces the table."""
    if isinstance(table, str):
        table = {"kind": table}
    other = any(
        key in over and over[key] != table.get(key) for key in ("kind", "name", "hf_config")
    )
    return dict(over) if other or name in REPLACED else {**table, **over}


class ReadySide(NamedTuple):
    """One side with one allocator, ready to run: its replica, its step time and notes on its
    pool.
    """

    spec: ReplicaSpec
    step_time: StepTime
    known_before: tuple[tuple[str, str], ...]


class DisaggregatedRuns:
    """Simulates prefill and decode replicas. prepare: makes the replica, step time and notes of one
    side's scenario for one allocator.
    """

    def __init__(
        self,
        scenario: Scenario,
        prepare: Callable[[Scenario, int], ReadySide],
    ) -> None:
        assert scenario.disaggregation is not None
        self._scenario = scenario
        self._options: DisaggregationOptions = scenario.disaggregation
        self._sides: list[list[ReadySide]] = [[] for _ in scenario.allocator]
        _check_tiers(scenario)
        for side in SIDES:
            try:
                alone = side_scenario(scenario, side)
                for at, sides in enumerate(self._sides):
                    sides.append(prepare(alone, at))
            except InputError as error:
                where = f"disaggregation.{side}: {error.where}"
                raise InputError(
                    error.what,
                    where=where,
                    value=error.value,
                    limit=error.limit,
                    remedy=error.remedy,
                ) from None
        for sides in self._sides:
            engine = HANDOFFS[self._kind(sides)]
            for side_ready in sides:
                engine.check(side_ready.spec)

    def _kind(self, sides: list[ReadySide]) -> str:
        """The engine of both sides; InputError if the sides' engines differ, or for keys of another
        engine.
        """
        engines = {each.spec.scheduler.engine for each in sides}
        engine = engines.pop() if len(engines) == 1 else None
        if engine not in HANDOFFS:
            names = " and ".join(type(each.spec.scheduler).__name__ for each in sides)
            check(ServerParts(transfers="other", schedulers=names))
        assert engine is not None
        wrong = self._options.of(engine)
        if wrong:
            raise InputError(
                "this key is another engine's and changes nothing here",
                where=f"disaggregation.{wrong[0]}",
                value=getattr(self._options, wrong[0]),
                remedy="leave it out",
            )
        if self._options.decode_radix_cache and self._options.retraction_host_ratio is not None:
            raise InputError(
                "a decode engine with a prefix cache has no limit on retracted requests",
                where="disaggregation.retraction_host_ratio",
                value=self._options.retraction_host_ratio,
                remedy="leave it or decode_radix_cache out",
            )
        blocks = {
            getattr(each.spec.allocator, key, None) for each in sides for key in ("block_size",)
        }
        if len(blocks) > 1:
            raise InputError(
                "both sides have blocks of one size here",
                where="disaggregation",
                value=", ".join(map(str, sorted(blocks, key=str))),
                remedy="give both the same block_size",
            )
        return engine

    @property
    def side_gpus(self) -> tuple[int, ...]:
        """Number of GPUs of one replica of each side."""
        return tuple(side_scenario(self._scenario, side).model.num_gpus for side in SIDES)

    @property
    def gpus(self) -> int:
        """Number of GPUs of all replicas on both sides."""
        counts = self._options.prefill.replicas, self._options.decode.replicas
        return sum(gpus * count for gpus, count in zip(self.side_gpus, counts, strict=True))

    def part(self, at: int) -> PrefillDecodePart:
        """The specification of the deployment with the allocator at index `at`."""
        options, sides = self._options, self._sides[at]
        prefill, decode = (
            DeploymentSide(
                side.spec, side.step_time, getattr(options, name).replicas, options.router
            )
            for side, name in zip(sides, SIDES, strict=True)
        )
        transfers = TransferSpec(
            options.ps("link_latency_us"),
            options.link_bytes_per_s,
            options.ps("handshake_us"),
            options.ps("notice_us"),
            options.ps("notify_us"),
            options.ps("proxy_us"),
            options.lease_ps,
            *map(options.timeout_ps, ("bootstrap_timeout", "waiting_timeout")),
        )
        return PrefillDecodePart(
            HANDOFFS[self._kind(sides)],
            transfers,
            prefill,
            decode,
            partial(_prepare, options, self._scenario.seed),
            self._scenario.seed,
        )

    def recorded(
        self,
        deployment: FleetMember,
        kind: str,
        label: str,
        num_requests: int,
        began_s: float,
        *,
        shareable: bool,
    ) -> Run:
        """The run of the decode replicas, which contains that of the prefill replicas."""
        assert isinstance(deployment, PrefillDecode)
        decode, prefill = Pooled.of(deployment.decode), Pooled.of(deployment.prefill)
        runs = []
        notes = {side: self._sides[0][at].known_before for at, side in enumerate(SIDES)}
        for pool, name, side, count in (
            (decode, label, "decode", num_requests),
            (prefill, f"{label}: prefill", "prefill", deployment.num_prompts),
        ):
            summary = summarise(
                cast("Replica", pool),
                kind,
                name,
                num_requests=count,
                began_s=began_s,
                window=self._scenario.window,
                shareable=shareable,
                known_before=notes[side],
            )
            summary = replace(_with_all_ends(summary, pool.recorder), pool_of=side)
            runs.append(Run.recorded(summary, pool.recorder))
        moved = _transfers(deployment, decode.recorder)
        run, beside = runs
        links = [(TRANSFERS, deployment.handoff.network.log), *tier_links(prefill.tiers)]
        run = run.with_links(links)
        return replace(run, summary=replace(run.summary, transfers=moved), beside=(beside,))


def _with_all_ends(summary: RunSummary, recorder: Recorder) -> RunSummary:
    """The summary with the makespan of replicas that computed no step.

    All outputs may have one token: their requests end on a prefill replica.
    """
    done = Departures.of(recorder)
    if recorder.steps or not len(done.finish_ps):
        return summary
    makespan_s = seconds_from_ps(int(done.finish_ps.max()) - int(done.arrival_ps.min()))
    return replace(
        summary,
        makespan_s=makespan_s,
        requests_per_s=summary.requests.finished / makespan_s,
        output_tokens_per_s=int(done.output_tokens.sum()) / makespan_s,
    )


def _prepare(options: DisaggregationOptions, seed: int, handoff: Handoff) -> None:
    """Set the requested failures on a hand-off, and the flags that only one engine has."""
    if isinstance(handoff, SglangHandoff):
        reserved = options.num_reserved_decode_tokens
        handoff.num_reserved_decode_tokens = (
            RESERVED_DECODE_TOKENS if reserved is None else reserved
        )
        handoff.decode_radix_cache = bool(options.decode_radix_cache)
        handoff.retraction_host_ratio = options.retraction_host_ratio
    handoff.failed_reads = DrawnRequests(options.failed_reads or 0.0, f"read {seed}")
    handoff.abandoned = DrawnRequests(options.abandoned or 0.0, f"client {seed}")
    if isinstance(handoff, NixlHandoff):
        handoff.recomputes_failed = options.kv_load_failure_policy == "recompute"


def _transfers(deployment: PrefillDecode, recorder: Recorder) -> TransferSummary:
    network, count = deployment.handoff.network, deployment.handoff.network.num_moves
    ports = min(len(deployment.prefill), len(deployment.decode))
    makespan_ps = recorder.makespan_ps
    return TransferSummary(
        prefill_replicas=len(deployment.prefill),
        decode_replicas=len(deployment.decode),
        transfers=count,
        num_bytes=network.num_bytes,
        mean_s=network.busy_ps / count / PS_PER_S if count else None,
        mean_wait_s=network.waited_ps / count / PS_PER_S if count else None,
        port_busy=network.busy_ps / (makespan_ps * ports) if makespan_ps else 0.0,
        expired=deployment.handoff.num_expired,
    )
