"""Cells: parts of a fleet that know nothing of each other, each with a router of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvsim.fleet.options import FleetOptions
from kvsim.fleet.routers.round_robin import RoundRobin
from kvsim.request import Request, Stream
from kvsim.support.parts import ServerParts
from kvsim.support.table import check


class FleetCell(NamedTuple):
    """numbers: of its replicas in the fleet. stream: the requests that come to it."""

    numbers: tuple[int, ...]
    stream: Stream


def cells_of(
    options: FleetOptions, num_replicas: int, stream: Stream, *, shares: bool = False
) -> list[FleetCell]:
    """The cells of a fleet with their requests. shares: whether its replicas share a tier.

    Replicas and requests are dealt to the cells in turn; requests of one session, and those that
    follow each other, go to one cell. Under round robin no replica's state is read. So each is
    served alone, with the same bits: a cell of its own with every N-th request.
    """
    shared = "fleet" if shares else ""
    check(ServerParts(cells=options.cells, clients=bool(stream.max_concurrency), shared=shared))
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


def _part(stream: Stream, requests: Sequence[Request]) -> Stream:
    return replace(stream, requests=tuple(requests))


def _dealt(requests: Sequence[Request], count: int) -> Iterator[list[Request]]:
    """The requests of each cell."""
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
    """Whether it is known beforehand which replica gets which request."""
    return (
        isinstance(options.router, RoundRobin)
        and options.router_processes == 1
        and options.autoscaler is None
        and not options.failure
        and not stream.max_concurrency
        and not (options.regret and not stream.anonymous)
        and all(each.after is None for each in stream.requests)
    )
