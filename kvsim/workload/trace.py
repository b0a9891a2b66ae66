"""Replay a recorded trace: as recorded, cut to a part, rescaled, or with other arrivals."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Self

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import seconds_from_ps
from kvsim.request import PromptItem, Request, Stream
from kvsim.token_runs import under_adapter, with_items
from kvsim.workload import cuts
from kvsim.workload.arrivals import ARRIVALS, ArrivalOptions, Schedule
from kvsim.workload.clients import Clients
from kvsim.workload.content import TokenIds, kept, runs_of_blocks
from kvsim.workload.options import TokenLimit, WorkloadOptions, resolve_limit
from kvsim.workload.random import generator
from kvsim.workload.source import TraceSource
from kvsim.workload.traces.record import Trace, TraceRow


class TraceReplay(TraceSource, WorkloadOptions):
    """`kind = "trace"`: replays a recorded trace. The keys below apply in this order, each with a
    note.

    start_s, end_s: the window [start_s, end_s) since the trace's first row. limit: its first rows.
    drop_over, clip_to: longest prompt + output, in tokens or "max_model_len". rate_scale: factor on
    the arrival rate; rate_per_s: scaled to this mean rate. arrivals: a process that replaces the
    trace's times (and supplies them to a lengths-only file). The stream's clock starts with its
    first request.
    """

    start_s: NonNegativeFloat | None = None
    end_s: PositiveFloat | None = None
    limit: PositiveInt | None = None
    drop_over: TokenLimit | None = None
    clip_to: TokenLimit | None = None
    rate_scale: PositiveFloat | None = None
    rate_per_s: PositiveFloat | None = None
    arrivals: Annotated[ArrivalOptions, OneOf(ARRIVALS, "workload.arrivals")] | None = None

    @model_validator(mode="after")
    def _one_clock(self) -> Self:
        given = [key for key in ("rate_scale", "rate_per_s", "arrivals") if getattr(self, key)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other")
        return self

    def generate(self, seed: int, *, base: Path, max_model_len: int | None) -> Stream:
        """The trace's requests."""
        path = self.file(base)
        trace = self.cut(self.read(path), max_model_len)
        schedule, notes = self._schedule(trace, seed)
        clients = Clients(self, len(trace.rows), seed)
        requests = _requests(trace, schedule, clients)
        digest = sha256(path.read_bytes()).hexdigest()
        return Stream(
            requests=tuple(requests),
            notes=(*trace.notes, *notes, *clients.notes(len(requests))),
            source={"file": path.name, "sha256": digest, "format": trace.format, "seed": str(seed)},
        )

    def cut(self, trace: Trace, max_model_len: int | None) -> Trace:
        """The part of a trace that the options select, at their rate, with notes."""
        rows, notes = trace.rows, list(trace.notes)
        if self.start_s is not None or self.end_s is not None:
            rows, note = cuts.window(trace, self.start_s, self.end_s)
            notes.append(note)
        if self.limit is not None:
            rows, note = cuts.first(rows, self.limit)
            notes.append(note)
        drop_over = resolve_limit(self.drop_over, max_model_len, "workload.drop_over")
        if drop_over is not None:
            rows, note = cuts.drop_longer(rows, drop_over)
            notes.append(note)
        clip_to = resolve_limit(self.clip_to, max_model_len, "workload.clip_to")
        if clip_to is not None:
            rows, clipped = cuts.clip(rows, clip_to)
            notes += filter(None, [clipped])
        factor = self.rate_scale
        if self.rate_per_s is not None:
            factor = self.rate_per_s / cuts.rate_of(rows)
        if factor is not None:
            rows, note = cuts.speed_up(rows, factor)
            notes.append(note)
        return replace(trace, rows=rows, notes=tuple(notes))

    def _schedule(self, trace: Trace, seed: int) -> tuple[Schedule | None, list[str]]:
        """The arrival process that replaces the trace's clock; None without one."""
        if self.arrivals is not None:
            count = sum(row.follows is None for row in trace.rows)
            note = f"{count:,} of {len(trace.rows):,} arrival times replaced"
            schedule = self.arrivals.schedule(count, generator(seed, "arrivals"))
            return schedule, [note] if trace.timed else []
        if not trace.timed:
            raise InputError(
                "the file holds lengths and no times",
                where=trace.name,
                remedy="add [workload.arrivals], such as kind = 'poisson' with rate_per_s",
            )
        zero = cuts.start_of(trace)
        return None, [f"clock starts {seconds_from_ps(zero):g} s into the trace's"] if zero else []


def _requests(trace: Trace, schedule: Schedule | None, clients: Clients) -> list[Request]:
    rows, block_tokens = trace.rows, trace.hash_block_tokens
    ids = [row.id for row in rows]
    named = len(set(ids)) == len(ids) and None not in ids
    names = [str(name) for name in ids] if named else [f"line{row.line}" for row in rows]
    if len(set(names)) < len(names):
        names = [f"r{index}" for index in range(len(rows))]
    by_id = dict(zip(ids, names, strict=True))
    highest = max((max(row.hash_ids) for row in rows if row.hash_ids), default=-1)
    private = TokenIds((highest + 1) * (block_tokens or 1))
    contents: dict[tuple[int, str], int] = {}
    adapters: dict[str, int] = {}
    starts = _Starts(schedule, cuts.start_of(trace))
    requests = []
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        follows = None if row.follows is None else by_id[row.follows]
        if follows is None:
            arrival_ps, after, think_ps = starts.next(row, name)
        else:
            arrival_ps, after, think_ps = starts.latest_ps, follows, row.delay_ps
        output_tokens, max_tokens = clients.output(row.output_tokens)
        runs = None
        if row.hash_ids is not None and block_tokens is not None:
            runs = runs_of_blocks(row.hash_ids, block_tokens, row.prompt_tokens, private)
        items: list[PromptItem] = []
        for start, tokens, name_of_item in row.items:
            content = contents.setdefault((tokens, name_of_item), -1)
            if content < 0:
                content = contents[tokens, name_of_item] = private.take(tokens)
            items.append(PromptItem(start, tokens, content))
        whole = kept(tuple(items), row.prompt_tokens)
        adapter = clients.adapters[index]
        if adapter is None and row.adapter is not None:
            adapter = adapters.setdefault(row.adapter, len(adapters))
        if runs is not None:
            runs = under_adapter(with_items(runs, whole), adapter)
        requests.append(
            Request(
                id=name,
                arrival_ps=arrival_ps,
                prompt_tokens=row.prompt_tokens,
                output_tokens=output_tokens,
                max_tokens=max_tokens,
                priority=clients.priorities[index],
                n=clients.n,
                prompt_runs=runs,
                after=after,
                think_ps=think_ps,
                session=row.session,
                items=whole,
                adapter=adapter,
                any_user=follows is None and after is not None,
            )
        )
        starts.ended(row, name)
    return requests


class _Starts:
    """Start times of the rows that follow no other row: as recorded, or by a schedule.

    In a closed loop a row starts when the whole previous conversation has ended.
    """

    def __init__(self, schedule: Schedule | None, zero_ps: int) -> None:
        self._schedule = schedule
        self._zero_ps = zero_ps
        self._count = 0
        self._last_of: list[str] = []
        self._chain_of: dict[str, int] = {}
        self.latest_ps = 0

    def next(self, row: TraceRow, name: str) -> tuple[int, str | None, int]:
        """(arrival, request to wait for, think time) of the next start."""
        index, self._count = self._count, self._count + 1
        if self._schedule is None:
            assert row.arrival_ps is not None
            self.latest_ps = row.arrival_ps - self._zero_ps
            return self.latest_ps, None, 0
        self._last_of.append(name)
        self.latest_ps = int(self._schedule.arrival_ps[index])
        if self._schedule.after is None or self._schedule.think_ps is None:
            return self.latest_ps, None, 0
        before = int(self._schedule.after[index])
        after = None if before < 0 else self._last_of[before]
        return self.latest_ps, after, int(self._schedule.think_ps[index])

    def ended(self, row: TraceRow, name: str) -> None:
        """Record that the request `name` is now the newest of its conversation."""
        if self._schedule is None:
            return
        chain = self._chain_of.get(row.follows or "", self._count - 1)
        if row.id is not None:
            self._chain_of[row.id] = chain
        self._last_of[chain] = name
