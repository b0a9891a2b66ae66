"""Values for the tables of a scenario, drawn from the option classes themselves."""

import types
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.options import Options
from kvsim.plumbing.registry import Registry

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
SKIPPED = ("label", "path", "column", "lengths", "hash_block_tokens", "format", "file")


def drawn(
    random: Random, registry: Registry[Any], among: Any = None, depth: int = 0
) -> dict[str, Any]:
    """A table of one of the kinds of a registry; among: of these kinds."""
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
            value = value_for(random, name, field, depth + 1)
            if value is not None:
                table[name] = value
    return table


def value_for(random: Random, name: str, field: FieldInfo, depth: int) -> Any:
    """A value that this field takes; None: a name or a path, or too deep within others."""
    limits = [each for each in field.metadata if not isinstance(each, OneOf)]
    choice = next((each for each in field.metadata if isinstance(each, OneOf)), None)
    if choice is not None:
        return _chosen(random, name, choice, depth)
    return _of(random, name, field.annotation, limits, depth)


def _chosen(random: Random, name: str, choice: OneOf, depth: int) -> Any:
    among = [kind for kind in choice.registry if kind != "none" or name == "output"]
    return drawn(random, choice.registry, among, depth) if depth < 4 else None


def _of(random: Random, name: str, annotation: Any, limits: list[Any], depth: int) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        choice = next((each for each in arguments[1:] if isinstance(each, OneOf)), None)
        if choice is not None:
            return _chosen(random, name, choice, depth)
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
