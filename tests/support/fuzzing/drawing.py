"""Values for the tables of a scenario, drawn from the option classes themselves: what a class or a
registry has is drawn, without a line here for each key.
"""

import types
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.late_table import LateTable
from kvsim.plumbing.options import Options
from kvsim.plumbing.registry import Registry

# Where any number would do: some that bite at this size.
WHOLE = (1, 2, 3, 5, 8, 16, 24, 64, 100, 256, 700, 2048)
PARTS = (0.01, 0.1, 0.25, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 10.0, 40.0)
MODELS = ("opt-125m", "opt-1.3b", "qwen2.5-0.5b", "gemma-3-1b", "llama-3.2-1b")
SEVERAL_KINDS = ("gemma-3-1b", "gemma-4-e2b", "gpt-oss-20b", "granite-4.0-h-tiny", "qwen3.5-4b")
DEVICES = ("a100-40gb", "h100", "rtx-4090", "l4")
# An idle engine polls each millisecond of a lease, and a run of single steps leaves no poll out.
LEASES_S = (0.01, 0.1, 0.5)
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
    "tensor_parallel_size": (1, 2),
    "pipeline_parallel_size": (1, 2, 3),
    "data_parallel_size": (1, 2),
    "decode_context_parallel_size": (1, 2),
    "replicas": (1, 1, 2, 3),
    "min_replicas": (1, 2),
    "max_replicas": (1, 2, 4),
    "interval_s": (0.2, 1.0, 15.0),
    "scale_down_after_s": (0.0, 1.0, 300.0),
    "start_up_s": (0.0, 0.3, 60.0),
    "cells": (1, 1, 2),
    "router_processes": (1, 1, 2),
    "group": (0, 1),
    "at_s": (0.0, 0.1, 0.5, 3.0),
    "replica": (0, 0, 1),
    "restart_s": (0.0, 0.2, 5.0),
    "kv_offloading_size": (0.003, 0.05, 1.0),
    "max_local_cpu_size": (0.003, 0.05, 1.0),
    "hicache_size": (0.05, 1.0),
    "kv_lease_duration": LEASES_S,
    "bootstrap_timeout": (0.01, 0.5, 300.0),
    "waiting_timeout": (0.01, 0.5, 300.0),
    "link_gb_per_s": (0.05, 2.0, 50.0),
    "link_latency_us": (0.0, 10.0, 5000.0),
    "failed_reads": (0.0, 0.3, 1.0),
    "abandoned": (0.0, 0.3, 1.0),
    "num_reserved_decode_tokens": (0, 16, 512),
    "num_speculative_tokens": (1, 2, 5),
    "synthetic_acceptance_length": (1.0, 1.5, 2.0),
    "acceptance_pattern": ([0], [1, 0], [0, 1, 1]),
    "clients": (1, 8),
    "number": (1, 2, 3),
    "text": ("Which one?",),
    "model": MODELS,
}
SKIPPED = ("label", "path", "column", "lengths", "hash_block_tokens", "format", "file")
DEEPEST = 4


class Drawing:
    """Draws tables. inside: what is drawn for a table that another one holds as plain keys, such as
    the model of a group of replicas; by its name.
    """

    def __init__(self, random: Random, inside: dict[str, Any] | None = None) -> None:
        self.random = random
        self._inside = inside or {}

    def kind(self, registry: Registry[Any], among: Any = None, depth: int = 0) -> dict[str, Any]:
        """A table of one of the kinds of a registry; among: of these kinds."""
        kinds = list(registry if among is None else among)
        readable = [kind for kind in kinds if not _needs_a_file(registry.get(kind))]
        kind = self.random.choice(readable)
        fields = self.table(registry.get(kind), depth)
        if kind == "grid":
            if self.random.random() < 0.5:
                fields = {"name": "sharegpt-opt.output_tokens"}
            else:
                fields = {"quantiles": [1.0, 9.0, 120.0]}
        return {"kind": kind, **fields}

    def table(
        self, options: type[Options], depth: int = 0, share: float | None = None
    ) -> dict[str, Any]:
        """Values for the fields that are required, and for a share of the others."""
        table = {}
        often = share if share is not None else 0.3 if depth else 0.4
        for name, field in options.model_fields.items():
            if name in SKIPPED:
                continue
            if field.is_required() or self.random.random() < often:
                value = self.value(name, field, depth + 1)
                if value is not None:
                    table[name] = value
        return table

    def value(self, name: str, field: FieldInfo, depth: int) -> Any:
        """A value that this field takes; None: a name or a path, or too deep within others."""
        limits = [each for each in field.metadata if not isinstance(each, OneOf | LateTable)]
        for each in field.metadata:
            if isinstance(each, OneOf | LateTable):
                return self._chosen(name, each, depth)
        return self._of(name, field.annotation, limits, depth)

    def _chosen(self, name: str, choice: OneOf | LateTable, depth: int) -> Any:
        if isinstance(choice, LateTable):
            return self.table(choice.options, depth)
        among = [kind for kind in choice.registry if kind != "none" or name == "output"]
        return self.kind(choice.registry, among, depth) if depth < DEEPEST else None

    def _of(self, name: str, annotation: Any, limits: list[Any], depth: int) -> Any:
        random = self.random
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            for each in arguments[1:]:
                if isinstance(each, OneOf | LateTable):
                    return self._chosen(name, each, depth)
            return self._of(name, arguments[0], [*limits, *arguments[1:]], depth)
        if origin in (Union, types.UnionType):
            some = [each for each in arguments if each is not type(None)]
            return self._of(name, random.choice(some), limits, depth)
        if origin is Literal:
            return random.choice(arguments)
        if origin is dict:
            return self._keys(name, arguments, depth)
        if _is_table(annotation):
            return self.table(annotation, depth)
        if name in OURS and not (arguments and _is_table(arguments[0])):
            return _within(random, OURS[name], limits)
        if origin in (tuple, list):
            return self._several(name, arguments, depth)
        if annotation is bool:
            return random.random() < 0.5
        if annotation is int:
            return _within(random, WHOLE, limits)
        if annotation is float:
            return _within(random, PARTS, limits)
        return None  # a name or a path

    def _several(self, name: str, arguments: tuple[Any, ...], depth: int) -> list[Any] | None:
        count = self.random.choice((1, 2))
        drawn = [self._of(name, arguments[0], [], depth) for _ in range(count)]
        return [each for each in drawn if each is not None] or None

    def _keys(self, name: str, arguments: tuple[Any, ...], depth: int) -> dict[str, Any] | None:
        """A table without a kind: drawn by its own function, or with one key of a Literal."""
        if name in self._inside:
            found: dict[str, Any] = self._inside[name](self)
            return found
        if get_origin(arguments[0]) is Literal:
            key = self.random.choice(get_args(arguments[0]))
            return {key: self._of(key, arguments[1], [], depth)}
        return None


def drawn(random: Random, registry: Registry[Any], among: Any = None) -> dict[str, Any]:
    """A table of one of the kinds of a registry; among: of these kinds."""
    return Drawing(random).kind(registry, among)


def value_for(random: Random, name: str, field: FieldInfo, depth: int) -> Any:
    """A value that this field takes; None: a name or a path, or too deep within others."""
    return Drawing(random).value(name, field, depth)


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


def _needs_a_file(options: type[Options]) -> bool:
    fields = options.model_fields
    return any(name in SKIPPED and fields[name].is_required() for name in fields)


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

    if any(isinstance(value, list | str) for value in values):
        return random.choice(values)
    chosen = [value for value in values if fits(value)]
    return random.choice(chosen) if chosen else None
