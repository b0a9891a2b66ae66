"""Questions that capacity answers: each entry has a key, its bounds and the direction of better
values.

    rate            the highest rate of arrivals
    num_users       the most users that wait for answers (closed loops, max_concurrency)
    pool            the smallest KV pool, in tokens
    max_model_len   the largest max_model_len that meets the objectives

A pool or a length is looked for at a rate that is given, or at the scenario's own. For settings
with a best value that is no edge, the rate is searched at each of some values (`tunings`). These
are max_num_seqs, max_num_batched_tokens and prefill_replicas.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kvsim.capacity.options import WAYS
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.capacity.bisection import Bounds
from kvsim.whatif.capacity.load import (
    most_users,
    rate_of,
    users_key,
    users_of,
    with_rate,
    with_users,
)
from kvsim.whatif.scenario_tables import Table, with_value

# What decides more than the size of the pool: the engine's rules, and how many adapters it serves.
_BESIDE_POOL = ("engine_version", "max_loras")
UP_TO = 4096.0  # times the start is far enough to look
SHORTEST_TOKENS = 16.0


class Question(NamedTuple):
    """One question. put: sets a value in the tables. bounds: the range to search, for the tables of
    one allocator and a tolerance. possible: whether a value can be tried. unit: of the value.
    """

    name: str
    unit: str
    put: Callable[[Table, float], Table]
    bounds: Callable[[Table, Path, float], Bounds]
    possible: Callable[[Table, Path], bool]


def load_question(table: Table) -> Question:
    """The load question for these tables: the number of users in a closed loop, else the rate."""
    return QUESTIONS["rate" if users_key(table) is None else "num_users"]


def question_named(name: str) -> Question:
    """The question with this name; the InputError for an unknown name lists all."""
    if name not in QUESTIONS:
        known = ", ".join((*QUESTIONS, *TUNED, "gpus"))
        raise InputError(
            "nothing to look for", where="--find", value=name, remedy=f"one of {known}"
        )
    return QUESTIONS[name]


def _rate_bounds(table: Table, folder: Path, tolerance: float) -> Bounds:
    start = own_rate(table, folder)
    return Bounds(start, start / UP_TO, start * UP_TO, True, False, tolerance)


def own_rate(table: Table, folder: Path) -> float:
    """The scenario's own arrival rate: as given, or as recorded in its trace."""
    rate = rate_of(table)
    if rate is not None:
        return rate
    arrivals = [
        request.arrival_ps
        for request in Simulation(Scenario.from_table(table, folder)).stream.requests
        if request.after is None
    ]
    span_s = (max(arrivals) - min(arrivals)) / PS_PER_S
    return len(arrivals) / span_s if span_s else 1.0


def _users_bounds(table: Table, folder: Path, tolerance: float) -> Bounds:
    stream = Simulation(Scenario.from_table(table, folder)).stream
    most = float(most_users(table, len(stream.requests)))
    return Bounds(float(users_of(table)), 1.0, most, True, True, tolerance)


def _with_pool(table: Table, tokens: float) -> Table:
    table = copy.deepcopy(table)
    memory = table.get("memory") or {}
    kept = {key: memory[key] for key in _BESIDE_POOL if key in memory}
    return {**table, "memory": {**kept, "kv_cache_tokens": int(tokens)}}


def _pool_bounds(table: Table, folder: Path, tolerance: float) -> Bounds:
    tokens = prepared(table, folder).pool.pool_tokens
    return Bounds(float(tokens), 1.0, tokens * UP_TO, False, True, tolerance)


def _with_length(table: Table, tokens: float) -> Table:
    """The tables with this max_model_len and unchanged requests (see Capacity)."""
    return with_value(table, "model.max_model_len", int(tokens), "--find")


def _length_bounds(table: Table, folder: Path, tolerance: float) -> Bounds:
    simulation = prepared(table, folder)
    longest = simulation.model.max_position_embeddings
    start = float(simulation.max_model_len)
    return Bounds(start, min(SHORTEST_TOKENS, start), float(longest), True, True, tolerance)


def longest_fits(table: Table, folder: Path) -> bool:
    """Whether one sequence of max_model_len fits in the pool; otherwise an engine does not
    start.
    """
    try:
        simulation = prepared(table, folder)
    except InputError:
        return False
    longest = Request("longest", 0, simulation.max_model_len - 1, 1, max_tokens=1)
    (options,) = simulation.scenario.allocator
    return simulation.replica_spec(options).build().allocator.refusal(longest) is None


def prepared(table: Table, folder: Path) -> Simulation:
    """The scenario's model, pool and lengths, without its requests."""
    return Simulation(Scenario.from_table(table, folder), [])


QUESTIONS = {
    "rate": Question("rate", "", with_rate, _rate_bounds, lambda table, folder: True),
    "num_users": Question(
        "num_users",
        "users",
        lambda table, users: with_users(table, int(users)),
        _users_bounds,
        lambda table, folder: True,
    ),
    "pool": Question("pool", "tokens", _with_pool, _pool_bounds, lambda table, folder: True),
    "max_model_len": Question(
        "max_model_len", "tokens", _with_length, _length_bounds, longest_fits
    ),
}


def _put_setting(table: Table, name: str, value: int) -> Table:
    return with_value(table, f"scheduler.{name}", value, "--find")


def _put_split(table: Table, name: str, value: int) -> Table:
    """The tables with `value` prefill replicas; all others are decode replicas."""
    prefill, decode = SPLIT_KEYS
    others = sum(_split(table)) - value
    return with_value(with_value(table, prefill, value, "--find"), decode, others, "--find")


SPLIT_KEYS = ("disaggregation.prefill.replicas", "disaggregation.decode.replicas")


def _split(table: Table) -> tuple[int, int]:
    """(prefill replicas, decode replicas); InputError without [disaggregation]."""
    apart = Scenario.from_table(table).disaggregation
    if apart is None:
        raise InputError(
            "no prefill replicas to find",
            where="--find",
            value="prefill_replicas",
            remedy="give the scenario [disaggregation], with replicas of both kinds",
        )
    return apart.prefill.replicas, apart.decode.replicas


def _splits(table: Table) -> tuple[int, ...]:
    return tuple(range(1, sum(_split(table))))


class TunedSetting(NamedTuple):
    """A setting with several values; the highest rate is searched at each.

    key: its name in the answer. values: default values to try, for these tables. put: sets a value
    in the tables.
    """

    key: str
    values: Callable[[Table], tuple[int, ...]]
    put: Callable[[Table, str, int], Table]


TUNED = {
    "max_num_seqs": TunedSetting(
        "scheduler.max_num_seqs", lambda _: tuple(1 << at for at in range(3, 11)), _put_setting
    ),
    "max_num_batched_tokens": TunedSetting(
        "scheduler.max_num_batched_tokens",
        lambda _: tuple(1 << at for at in range(8, 15)),
        _put_setting,
    ),
    "prefill_replicas": TunedSetting(SPLIT_KEYS[0], _splits, _put_split),
}


def utilization_of(table: Table, folder: Path, tokens: float) -> float | None:
    """The gpu_memory_utilization that leaves a pool of `tokens` tokens; None if the device's memory
    is too small.
    """
    memory = {key: value for key, value in (table.get("memory") or {}).items() if key not in WAYS}
    whole = {**table, "memory": {**memory, "gpu_memory_utilization": 1.0}}
    try:
        pool = prepared(whole, folder).pool
    except InputError:
        return None
    asked = prepared(_with_pool(table, tokens), folder).pool.capacity_bytes
    share = (pool.total_bytes - pool.capacity_bytes + asked) / pool.total_bytes
    return share if share <= 1 else None
