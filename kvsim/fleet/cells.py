"""Cells: independent parts of a fleet, each with its own router and its own requests."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvsim.fleet.options import FleetOptions
from kvsim.fleet.routers.round_robin import RoundRobin
from kvsim.request import Request, Stream
from kvsim.support.parts import ServerParts
from kvsim.support.table import check


class FleetCell(NamedTuple):
    """One independent part of a fleet. numbers: indices of its replicas in the fleet. stream: the
    requests that are sent to it.
    """

    numbers: tuple[int, ...]
    stream: Stream


def cells_of(
    options: FleetOptions, num_replicas: int, stream: Stream, *, shares: bool = False
) -> list[FleetCell]:
    """The cells of a fleet with their requests. shares: whether the replicas of a cell share a
    tier.

    Replicas and requests are assigned to the cells round robin; requests of one session, and those
    that follow each other, go to one cell. The round-robin router reads no replica's state. So
    under this router each replica becomes a cell of its own, with every N-th request and identical
    results.
    """
    shared = "fleet" if shares else ""
    check(
        ServerParts(
            cells=options.cells,
            clients=bool(stream.max_concurrency),
            rounds=options.cells > 1 and _in_rounds(stream.requests),
            shared=shared,
        )
    )
    dealt = list(_dealt(stream.requests, options.cells))
    found = []
    for cell in range(options.cells):
        numbers = tuple(range(cell, num_replicas, options.cells))
        own = stream if options.cells == 1 else _part(stream, dealt[cell])
        if not shares and _in_turn(options, own):
            count = len(numbers)
            parts = [_part(own, own.requests[at::count]) for at in range(count)]
            found += [FleetCell((n,), part) for n, part in zip(numbers, parts, strict=True)]
        else:
            found.append(FleetCell(numbers, own))
    return found


def _in_rounds(requests: Sequence[Request]) -> bool:
    """Whether some request waits for a group with requests of several sessions."""
    sessions: dict[str, set[str | None]] = {}
    for request in requests:
        if request.group is not None:
            sessions.setdefault(request.group, set()).add(request.session)
    waited = {request.after for request in requests}
    return any(len(found) > 1 and group in waited for group, found in sessions.items())


def _part(stream: Stream, requests: Sequence[Request]) -> Stream:
    return replace(stream, requests=tuple(requests))


def _dealt(requests: Sequence[Request], count: int) -> Iterator[list[Request]]:
    """The requests of each of `count` cells, in order of the cells."""
    if count == 1:
        return
    shares: list[list[Request]] = [[] for _ in range(count)]
    cell_of: dict[str, int] = {}
    sessions: dict[str, int] = {}
    followed = {each.after for each in requests if each.after is not None}
    turn = 0
    for request in requests:
        cell = None if request.after is None else cell_of[request.after]
        if cell is None and request.session is not None:
            cell = sessions.get(request.session)
        if cell is None:
            cell, turn = turn % count, turn + 1
        if request.session is not None:
            sessions.setdefault(request.session, cell)
        for name in request.id, request.group:
            if name is not None and name in followed:
                cell_of[name] = cell
        shares[cell].append(request)
    yield from shares


def _in_turn(options: FleetOptions, stream: Stream) -> bool:
    """Whether the assignment of requests to replicas is known before the run, as under plain round
    robin.
    """
    return (
        isinstance(options.router, RoundRobin)
        and options.router_processes == 1
        and options.autoscaler is None
        and not options.failure
        and not stream.max_concurrency
        and not (options.regret and not stream.anonymous)
        and all(each.after is None for each in stream.requests)
    )
