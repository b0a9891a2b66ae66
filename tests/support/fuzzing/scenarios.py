"""Random scenarios over the whole option space, drawn from the option classes themselves: a new
option, allocator or arrival process is tried without a line here.

What a scenario must keep, whatever it asks for: every request leaves, the ledger's classes sum to
one, moments and gaps and queues agree, steps at once and one by one give the same bits, and what
was resolved runs again to the same.
"""

import json
import tomllib
import types
from collections.abc import Iterable
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from kvsim.engine.schedulers import SCHEDULERS
from kvsim.memory import ALLOCATORS
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.registry import Registry
from kvsim.plumbing.toml import to_toml
from kvsim.results.result import Run
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time import STEP_TIMES
from kvsim.workload import WORKLOADS
from support.outcomes import check_books, check_tokens

MODELS = ("opt-125m", "opt-1.3b", "qwen2.5-0.5b", "gemma-3-1b", "llama-3.2-1b")
SEVERAL_KINDS = ("gemma-3-1b", "gemma-4-e2b", "gpt-oss-20b", "granite-4.0-h-tiny", "qwen3.5-4b")
DEVICES = ("a100-40gb", "h100", "rtx-4090", "l4")
# Where any number would do: some that bite at this size.
WHOLE = (1, 2, 3, 5, 8, 16, 24, 64, 100, 256, 700, 2048)
PARTS = (0.01, 0.1, 0.25, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 10.0, 40.0)
OURS: dict[str, tuple[Any, ...]] = {  # counts that decide how long a case takes, and what is a file
    "num_requests": (1, 2, 7, 20, 40),
    "num_sessions": (1, 3, 8),
    "max_turns": (1, 2, 4),
    "n": (1, 1, 1, 2, 4),
    "beam_width": (1, 2, 4),
    "rate_per_s": (0.5, 2.0, 20.0, 200.0),
    "mean_s": (0.0, 0.2, 3.0),
    "period_s": (1.0, 60.0),
    "shape": (0.5, 1.0, 2.0),
    "cv": (0.3, 1.0, 4.0),
    "sigma": (0.0, 0.5, 1.5),
    "mu": (1.0, 3.0, 5.0),
    "mean": (1.0, 5.0, 60.0),
    "tokens": (1, 4, 33, 150),
    "max_tokens": (5, 60, 300),
    "min_tokens": (1, 4),
    "share": (0.5, 1.0),
    "weight": (0.5, 1.0),
    "duration_s": (0.5, 5.0),
    "seconds": (0.0, 0.1, 2.0),
    "base_us": (5000.0, 100.0),
    "host_cache_gib": (0.01, 0.3),
    "swap_space_gib": (0.01, 0.3),
    "allocation_latency_us": (0.0, 20.0),
    "swap_latency_us": (0.0, 20.0),
    "max_in_flight_tokens": (64, 2048),
    "probabilities": ([0.5], [0.9, 0.2]),
    "quantiles": ([1.0, 9.0, 120.0],),
    "name": ("sharegpt-opt.output_tokens",),
}
KEPT = {"kind", "allocator", "scheduler", "workload", "memory", "model", "device", "tokens"}
SKIPPED = ("label", "path", "column", "lengths", "hash_block_tokens", "format", "file")


def scenario(random: Random) -> dict[str, Any]:
    """The tables of a scenario, small enough to run in a moment; many are refused for good."""
    kinds = [kind for kind in WORKLOADS if kind != "trace"]
    table: dict[str, Any] = {
        "seed": random.randrange(1000),
        "model": {"name": random.choice(MODELS), "max_model_len": random.choice((64, 300, 1024))},
        "device": {"name": random.choice(DEVICES)},
        "memory": random.choice(
            (
                {"kv_cache_tokens": random.choice((128, 400, 1100, 6000))},
                {"num_gpu_blocks": random.choice((8, 40, 300))},
                {"kv_cache_bytes": random.choice((1, 7, 40)) << 20},
            )
        ),
        "allocator": [_kind(random, ALLOCATORS) for _ in range(random.choice((1, 1, 2)))],
        "scheduler": _kind(random, SCHEDULERS),
        "step_time": _kind(random, STEP_TIMES, ("linear", "roofline")),
        "workload": _kind(random, WORKLOADS, kinds),
    }
    if random.random() < 0.4:
        _more(random, table)
    _mended(random, table)
    if random.random() < 0.8:
        _accepted(table)
    for index, allocator in enumerate(table["allocator"]):
        allocator["label"] = f"{allocator['kind']} {index}"
    return table


def _more(random: Random, table: dict[str, Any]) -> None:
    """What is seldom: layers of several kinds, drafts, a scheduler for one allocator."""
    table["model"]["name"] = random.choice(SEVERAL_KINDS if random.random() < 0.5 else MODELS)
    if random.random() < 0.5:
        tokens = random.choice((1, 2, 5))
        method = random.choice(("eagle", "eagle3", "mtp", "ngram", "draft_model"))
        drafts: dict[str, Any] = {"method": method, "num_speculative_tokens": tokens}
        drafts |= random.choice(
            (
                {"acceptance_rate": random.choice((0.0, 0.7, 1.0))},
                {"synthetic_acceptance_length": random.choice((1.0, 1.5, tokens + 1))},
                {"acceptance_pattern": [random.randrange(tokens + 1) for _ in range(3)]},
            )
        )
        if method == "draft_model":
            drafts["model"] = random.choice(MODELS)
        elif method != "ngram" and random.random() < 0.3:
            drafts["disable_lookahead_block_hashes"] = True
        table["speculative_config"] = drafts
        table["allocator"] = [_kind(random, ALLOCATORS, ("paged",)) for _ in table["allocator"]]
        table["scheduler"] = _kind(random, SCHEDULERS, ("continuous",))
    elif random.random() < 0.5:
        random.choice(table["allocator"])["scheduler"] = _kind(random, SCHEDULERS)
    if random.random() < 0.3:
        table["model"]["kv_cache_dtype"] = random.choice(("fp8", "int4", "fp32", "nvfp4"))
    if random.random() < 0.3:
        table["model"]["tensor_parallel_size"] = 2
    if random.random() < 0.2:
        table["window"] = {"from_s": random.choice((0.0, 0.3, 5.0)), "to_s": 20.0}


def _mended(random: Random, table: dict[str, Any]) -> None:
    """What would be refused at once, whatever the rest says, is drawn as it has to be."""
    scheduler, step_time, workload = (table[key] for key in ("scheduler", "step_time", "workload"))
    if {"swap_space_gib", "swap_latency_us"} & scheduler.keys():
        scheduler["preemption_mode"] = "swap"
    if step_time["kind"] == "linear":
        step_time.setdefault("base_us", 4000.0)
    if scheduler["kind"] == "sglang":
        for name in ("preemption_mode", "swap_space_gib", "swap_latency_us", "victim"):
            scheduler.pop(name, None)
    expands = ("uncached", "beams")
    if workload["kind"] in expands:
        inner = [kind for kind in WORKLOADS if kind not in ("trace", *expands)]
        workload.pop("priorities", None)
        workload.pop("max_tokens", None)
        workload["of"] = _kind(random, WORKLOADS, inner)
        workload = workload["of"]
    for name in ("prompt", "output"):
        workload.setdefault(name, {"kind": "uniform", "max_tokens": random.choice((20, 200))})
    if any(each["kind"] == "concatenation" for each in table["allocator"]):
        # Every token moves every layer: a few requests are as much work as thousands.
        workload |= {key: 3 for key in ("num_requests", "num_sessions") if key in workload}
        workload["n"] = 1
    if workload["kind"] == "synthetic" and "redraw_over" in workload:
        workload.pop("clip_to", None)


def _accepted(table: dict[str, Any]) -> None:
    """Take out what a scenario is refused for, a key at a time, where that may help."""
    for _ in range(6):
        try:
            Simulation(Scenario.from_table(table))
        except InputError as error:
            named = {(error.where or "").rpartition(".")[2], error.what.partition(" ")[0]}
            if not _without(table, named - KEPT):
                return
        else:
            return


def _without(table: dict[str, Any], names: set[str]) -> bool:
    """Remove keys of these names wherever they are; whether there were any."""
    found = [name for name in names if name in table]
    for name in found:
        del table[name]
    inner = [each for value in table.values() for each in _tables(value)]
    return any([bool(found), *(_without(each, names) for each in inner)])


def _tables(value: Any) -> list[dict[str, Any]]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, dict)]


def check(table: dict[str, Any]) -> bool:
    """Whether the scenario runs, and everything it must keep if it does; InputError is no fault."""
    try:
        simulation = Simulation(Scenario.from_table(table))
        result = simulation.result()
    except InputError as error:
        if "\n" in str(error):
            raise AssertionError("more than one line") from error
        return False
    check_books(result)
    for run in result.runs:
        counts = run.summary["requests"]
        assert counts["finished"] + counts["rejected"] == counts["submitted"], counts
        for mean in ("time_mean", "step_mean"):
            total = sum(run.summary["memory"][mean].values())
            assert abs(total - 1) < 1e-9, (mean, total)
    singles = Simulation(Scenario.from_table({**table, "max_steps": 1}))
    _equal(result.runs, check_tokens(singles), "steps at once, and one by one with each token seen")
    resolved = tomllib.loads(to_toml(json.loads(json.dumps(result.scenario))))
    again = Simulation(Scenario.from_table({**resolved, "max_steps": 1})).result()
    _equal(result.runs, again.runs, "the resolved scenario, one by one")
    return True


def _equal(runs: Iterable[Run], others: Iterable[Run], what: str) -> None:
    for run, same in zip(runs, others, strict=True):
        for key, value in run.summary.items():
            if key != "wall_s":
                assert value == same.summary[key], (what, run.label, key)


def _kind(
    random: Random, registry: Registry[Any], among: Any = None, depth: int = 0
) -> dict[str, Any]:
    kinds = list(registry if among is None else among)
    readable = [kind for kind in kinds if not _needs_a_file(registry.get(kind))]
    kind = random.choice(readable)
    fields = _fields(random, registry.get(kind), depth)
    if kind == "grid" and not fields.keys() & {"name", "quantiles"}:
        fields["quantiles"] = [1.0, 9.0, 120.0]
    if fields.keys() >= {"name", "quantiles"}:
        del fields["name"]
    if "name" in fields or "quantiles" in fields:
        fields.pop("probabilities", None)
    return {"kind": kind, **fields}


def _needs_a_file(options: type[Options]) -> bool:
    fields = options.model_fields
    return any(name in SKIPPED and fields[name].is_required() for name in fields)


def _fields(random: Random, options: type[Options], depth: int) -> dict[str, Any]:
    """Values for the fields that are required, and for some of the others."""
    table = {}
    for name, field in options.model_fields.items():
        if name in SKIPPED:
            continue
        if field.is_required() or random.random() < (0.3 if depth else 0.4):
            value = _value(random, name, field, depth + 1)
            if value is not None:
                table[name] = value
    return table


def _value(random: Random, name: str, field: FieldInfo, depth: int) -> Any:
    limits = [each for each in field.metadata if not isinstance(each, OneOf)]
    choice = next((each for each in field.metadata if isinstance(each, OneOf)), None)
    if choice is not None:
        return _kind(random, choice.registry, depth=depth) if depth < 4 else None
    return _of(random, name, field.annotation, limits, depth)


def _of(random: Random, name: str, annotation: Any, limits: list[Any], depth: int) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        choice = next((each for each in arguments[1:] if isinstance(each, OneOf)), None)
        if choice is not None:
            return _kind(random, choice.registry, depth=depth) if depth < 4 else None
        return _of(random, name, arguments[0], [*limits, *arguments[1:]], depth)
    if origin in (Union, types.UnionType):
        some = [each for each in arguments if each is not type(None)]
        return _of(random, name, random.choice(some), limits, depth)
    if origin is Literal:
        return random.choice(arguments)
    if name in OURS:
        return _within(random, OURS[name], limits)
    if origin in (tuple, list):
        return [_of(random, name, arguments[0], [], depth) for _ in range(random.choice((1, 2)))]
    if annotation is bool:
        return random.random() < 0.5
    if annotation is int:
        return _within(random, WHOLE, limits)
    if annotation is float:
        return _within(random, PARTS, limits)
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return _fields(random, annotation, depth)
    return None  # a name or a path


def _within(random: Random, values: tuple[Any, ...], limits: list[Any]) -> Any:
    flat = [inner for each in limits for inner in (getattr(each, "metadata", None) or [each])]

    def fits(value: Any) -> bool:
        for limit in flat:
            if isinstance(limit, Ge) and not value >= limit.ge:
                return False
            if isinstance(limit, Gt) and not value > limit.gt:
                return False
            if isinstance(limit, Le) and not value <= limit.le:
                return False
            if isinstance(limit, Lt) and not value < limit.lt:
                return False
        return True

    if any(isinstance(value, list) for value in values):
        return random.choice(values)
    chosen = [value for value in values if fits(value)]
    return random.choice(chosen) if chosen else None
