"""The part of a client's TTFT outside the engine: HTTP, tokenising, the way back to the client.

The engine's clock begins where the scheduler sees a request, a client's where it sends one. The
difference is in every TTFT and in no TPOT. It is fitted on served points (`front_ends` of
calibration/kernels/host.json, made by evidence/points/fit_front_end.py).
"""

import json
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_MS
from kvsim.request import Request, Stream


class FrontEnd(NamedTuple):
    """Milliseconds of a request: request_ms of any, token_ms of each token of its prompt, client_ms
    of each client that is served at the same time.
    """

    request_ms: float = 0.0
    token_ms: float = 0.0
    client_ms: float = 0.0

    def ms(self, prompt_tokens: float, clients: int) -> float:
        """Time in ms for a request with `prompt_tokens` prompt tokens among `clients` clients."""
        return self.request_ms + self.token_ms * prompt_tokens + self.client_ms * clients


@cache
def _fitted() -> list[dict[str, Any]]:
    from kvsim.step_time.kernels.host import HOST_FILE  # few scenarios have a front end

    found: list[dict[str, Any]] = json.loads(HOST_FILE.read_text("utf-8")).get("front_ends", [])
    return found


def front_end(engine: str | None, kind: str, *, tuned: bool = True) -> FrontEnd | None:
    """The front end of an engine that serves a model of this model_type; None if none was fitted.

    tuned: whether it is that of a published benchmark, with its client; else that of default flags.
    """
    entries = [each for each in _fitted() if each["engine"] == engine]
    usual = [each for each in entries if each.get("flags") == "default"]
    entries = [each for each in entries if "flags" not in each]
    if usual and not tuned:
        entries = usual
    own = [each for each in entries if each.get("kind") == kind]
    found = (own or [each for each in entries if "kind" not in each])[:1]
    return FrontEnd(*(found[0][name] for name in FrontEnd._fields)) if found else None


class FrontEndOptions(Options):
    """The time between a client and the engine, in milliseconds. request_ms: of each request.
    token_ms: of each token of its prompt. client_ms: of each of `clients` served at once.

    Keys left out take values fitted on served points of the engine and the model's architecture;
    clients: the users of a closed loop, else 1. Latencies and waits begin when the client sends.
    """

    request_ms: float | None = Field(None, ge=0)
    token_ms: float | None = Field(None, ge=0)
    client_ms: float | None = Field(None, ge=0)
    clients: int | None = Field(None, ge=1)

    def clients_of(self, workload: object) -> int:
        """Number of clients: the option `clients`, else the users of a closed loop, else 1."""
        arrivals = getattr(workload, "arrivals", None)
        return self.clients or int(getattr(arrivals, "num_users", 1))

    def of(self, engine: str | None, kind: str, *, tuned: bool = False) -> FrontEnd:
        """The front end of this engine with a model of this model_type; InputError if it was not
        fitted and is not given in full.

        tuned: see `front_end`.
        """
        given = [getattr(self, name) for name in FrontEnd._fields]
        fitted = front_end(engine, kind, tuned=tuned)
        if fitted is None:
            if given[0] is None:
                raise InputError(
                    "no front end of this engine was fitted",
                    where="front_end.request_ms",
                    value=engine,
                    remedy="give request_ms, and token_ms and client_ms where they are not 0",
                )
            fitted = FrontEnd()
        pairs = zip(given, fitted, strict=True)
        return FrontEnd(*(own if own is not None else usual for own, usual in pairs))


def behind(stream: Stream, front: FrontEnd, clients: int) -> Stream:
    """The stream as it reaches the engine: arrivals delayed by the front end, sorted again."""
    requests = [_later(each, front, clients) for each in stream.requests]
    first = sorted((each for each in requests if each.after is None), key=_arrival_ps)
    return replace(
        stream, requests=(*first, *(each for each in requests if each.after is not None))
    )


def _arrival_ps(request: Request) -> int:
    return request.arrival_ps


def _later(request: Request, front: FrontEnd, clients: int) -> Request:
    """The request with its arrival delayed by this front end, instead of any earlier delay."""
    spent_ps = round(front.ms(request.prompt_tokens, clients) * PS_PER_MS)
    more_ps = spent_ps - request.front_end_ps
    if request.after is None:
        return request._replace(arrival_ps=request.arrival_ps + more_ps, front_end_ps=spent_ps)
    return request._replace(think_ps=request.think_ps + more_ps, front_end_ps=spent_ps)
