"""Requests as a trace file that a scenario replays, or as a synthetic load with the same means."""

from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_NS, ceil_div
from kvsim.readers.description import ClientLoad, Requests, SourceRequest
from kvsim.readers.parsing.client import Limit, limit_of
from kvsim.request import TokenRuns
from kvsim.workload.content import TokenIds, runs_of_blocks
from kvsim.workload.convert import convert
from kvsim.workload.traces.record import Trace, TraceRow

_PLAIN_BLOCK = 512  # of a Mooncake file without hashes
_ALWAYS = 0.9  # of its requests a closed loop sends at its limit
_GUESSED_SPREAD = 0.1  # of lengths to either side of a mean, where nothing tells it
_MOST_SPREAD = 0.9


class ScenarioWorkload(NamedTuple):
    """workload is the table [workload]; None if too little is known. lines are those of the trace
    file it refers to; None for a synthetic load.
    """

    workload: dict[str, Any] | None
    lines: list[str] | None


def stream_of(
    requests: Requests | None,
    load: ClientLoad | None,
    file_name: str,
    notes: list[str],
    users: int | None = None,
    spread: float | None = None,
) -> ScenarioWorkload:
    """The table [workload] that replays these requests, or else draws requests with the means of
    this load.

    users is the number of users of a closed loop; 0: recorded times without a concurrency limit;
    None: as the load or the requests say. spread is the half-width of the distribution of lengths,
    as a fraction of the mean, for sources with means only; None: unknown.
    """
    rows = usable(requests, notes) if requests is not None else []
    if requests is not None and rows:
        looped, limit = _clients(rows, load, notes) if users is None else (users, None)
        if looped:
            still = {"max_concurrency": looped, "rate_per_s": None}
            load = ClientLoad.parse(_means(rows) | still, "users")
            rows.sort(key=lambda row: row.arrival_ns or 0)
            rows = [row._replace(arrival_ns=None) for row in rows]
        made = _trace(requests, rows, load, file_name, notes)
        assert made.workload is not None
        return made._replace(workload=made.workload | _limited(limit))
    if load is None and users is not None:
        raise InputError("no requests are imported", where="--users", value=users)
    if load is not None:
        if users is not None:
            load = load.model_copy(update={"max_concurrency": users or None, "rate_per_s": None})
        return ScenarioWorkload(_synthetic(load, spread, notes), None)
    notes.append("no requests: add [workload], or import a source that has them")
    return ScenarioWorkload(None, None)


def _clients(
    rows: list[SourceRequest], load: ClientLoad | None, notes: list[str]
) -> tuple[int | None, int | None]:
    """(users, limit): users of a closed loop that sent the requests, else the clients' limit of
    concurrent requests; None if there is none.
    """
    most = load.max_concurrency if load is not None else None
    paced = load is not None and load.rate_per_s is not None
    if first_arrival(rows) is None:
        return None, most if paced else None  # of the rest `_arrivals` has what the load says
    limit = Limit(most, 1.0) if most is not None and not paced else limit_of(rows)
    if limit is not None and limit.share >= _ALWAYS and not paced:
        notes.append(
            f"{limit.requests:,} users of a closed loop send the requests, one at a time each "
            "(--users 0 keeps the recorded times)"
        )
        return limit.requests, None
    if most is None and limit is not None:
        most = limit.requests
        notes.append(
            f"the client had at most {most:,} requests in flight, and sent {limit.share:.0%} of "
            f"them at that limit: the scenario keeps their times and max_concurrency = {most} "
            f"(--users 0 drops the limit, --users {most} makes a closed loop)"
        )
    elif most is not None:
        notes.append(f"the client allowed {most:,} requests in flight (--users 0 drops the limit)")
    return None, most


def _limited(most: int | None) -> dict[str, int]:
    return {} if most is None else {"max_concurrency": most}


def _means(rows: list[SourceRequest]) -> dict[str, Any]:
    prompt, output = (
        sum(getattr(row, f"{name}_tokens") or 0 for row in rows) / len(rows)
        for name in ("prompt", "output")
    )
    return {"num_requests": len(rows), "prompt_tokens": prompt, "output_tokens": output}


def usable(requests: Requests, notes: list[str]) -> list[SourceRequest]:
    """The rows with both lengths, with hash ids cut to the prompt. Notes say what was left out."""
    rows = [
        row
        for row in requests.rows
        if (row.prompt_tokens or 0) > 0 and (row.output_tokens or 0) > 0
    ]
    missing = len(requests.rows) - len(rows)
    if missing:
        notes.append(f"{missing:,} requests without lengths are left out")
    timed = [row for row in rows if row.arrival_ns is not None]
    if timed and len(timed) < len(rows):
        notes.append(f"{len(rows) - len(timed):,} requests without a time are left out")
        rows = timed
    size = requests.hash_block_tokens
    if size is None:
        return rows
    found, short = [], 0
    for row in rows:
        assert row.prompt_tokens is not None
        ids = row.hash_ids
        if ids is not None:
            ids = ids[: ceil_div(row.prompt_tokens, size)]
            if len(ids) < row.prompt_tokens // size:
                ids, short = None, short + 1
        found.append(row._replace(hash_ids=ids))
    if short:
        notes.append(f"{short:,} requests have fewer hashes than blocks: taken as private")
    return found


def prompt_runs(
    row: SourceRequest, block_tokens: int | None, private: TokenIds
) -> TokenRuns | None:
    """The prompt's token runs, from its block hashes; None without hashes."""
    if row.hash_ids is None or block_tokens is None:
        return None
    assert row.prompt_tokens is not None
    return runs_of_blocks(row.hash_ids, block_tokens, row.prompt_tokens, private)


def private_ids(rows: list[SourceRequest], block_tokens: int | None) -> TokenIds:
    """Token ids above those of all hashed blocks, for prompt content that is not shared."""
    highest = max((max(row.hash_ids) for row in rows if row.hash_ids), default=-1)
    return TokenIds((highest + 1) * (block_tokens or 1))


def first_arrival(rows: list[SourceRequest]) -> int | None:
    """Arrival time of the first request in ns; None if times are not recorded."""
    times = [row.arrival_ns for row in rows if row.arrival_ns is not None]
    return min(times) if times else None


def _trace(
    requests: Requests,
    rows: list[SourceRequest],
    load: ClientLoad | None,
    file_name: str,
    notes: list[str],
) -> ScenarioWorkload:
    size = requests.hash_block_tokens or _PLAIN_BLOCK
    zero = first_arrival(rows)
    if zero is not None:
        rows = sorted(rows, key=lambda row: row.arrival_ns or 0)
    sessions = any(row.session is not None for row in rows)
    form = "mooncake" if zero is not None and not sessions else "aiperf"
    trace = Trace(
        file_name,
        form,
        [_row(line, row, zero) for line, row in enumerate(rows, 1)],
        hash_block_tokens=requests.hash_block_tokens,
    )
    lines, _ = convert(trace, form, size)
    workload: dict[str, Any] = {
        "kind": "trace",
        "path": file_name,
        "format": form,
        "hash_block_tokens": size,
    }
    if zero is None:
        workload["arrivals"] = _arrivals(load)
        if first_arrival(list(requests.rows)) is None:
            notes.append(f"when requests came is not recorded: arrivals are {workload['arrivals']}")
    if requests.hash_block_tokens is None:
        notes.append("no source has shared prefixes: no two prompts share one")
    return ScenarioWorkload(workload, lines)


def _row(line: int, row: SourceRequest, zero: int | None) -> TraceRow:
    assert row.prompt_tokens is not None
    assert row.output_tokens is not None
    arrival_ps = None
    if zero is not None:
        assert row.arrival_ns is not None
        arrival_ps = (row.arrival_ns - zero) * PS_PER_NS
    return TraceRow(
        line,
        arrival_ps,
        row.prompt_tokens,
        row.output_tokens,
        row.hash_ids,
        id=f"r{line}",
        session=row.session,
    )


def _arrivals(load: ClientLoad | None) -> dict[str, Any]:
    if load is not None and load.rate_per_s is not None:
        if load.burstiness == 1:
            return {"kind": "poisson", "rate_per_s": load.rate_per_s}
        # vLLM's burstiness is the shape of its gamma gaps: 1 / cv^2.
        return {"kind": "gamma", "rate_per_s": load.rate_per_s, "cv": load.burstiness**-0.5}
    if load is not None and load.max_concurrency is not None:
        think = {"kind": "fixed", "seconds": 0.0}
        return {"kind": "closed-loop", "num_users": load.max_concurrency, "think": think}
    return {"kind": "at-once"}


def _synthetic(load: ClientLoad, spread: float | None, notes: list[str]) -> dict[str, Any]:
    """A synthetic workload with these mean lengths.

    Lengths are drawn around the mean: requests of equal length would stay synchronised, and compute
    all their prompts at once.
    """
    most = load.max_concurrency if load.rate_per_s is not None else None
    share = _GUESSED_SPREAD if spread is None else min(spread, _MOST_SPREAD)
    prompt, output = (_drawn(mean, share) for mean in (load.prompt_tokens, load.output_tokens))
    why = (
        "a guess, and first tokens depend on it"
        if spread is None
        else "as the measured times of whole requests do"
    )
    notes.append(
        f"sources have means alone: {load.num_requests:,} requests have lengths drawn evenly from "
        f"{share:.0%} below to {share:.0%} above the means, {why}"
    )
    return _limited(most) | {
        "kind": "synthetic",
        "num_requests": load.num_requests,
        "arrivals": _arrivals(load),
        "prompt": prompt,
        "output": output,
    }


def _drawn(mean: float, share: float) -> dict[str, Any]:
    least, most = max(round(mean * (1 - share)), 1), max(round(mean * (1 + share)), 1)
    if least == most:
        return {"kind": "fixed", "tokens": least}
    return {"kind": "uniform", "min_tokens": least, "max_tokens": most}
