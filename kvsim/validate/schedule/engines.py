"""The engines whose schedules were recorded, a folder and a line each, and how a case is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.registry import Registry
from kvsim.validate.schedule.case import Case

RECORDED: Registry[Case] = Registry(
    "recorded engine",
    {
        "vllm": "kvsim.validate.schedule.vllm.case:VllmCase",
        "sglang": "kvsim.validate.schedule.sglang.case:SglangCase",
    },
)


def parse_case(table: Mapping[str, Any], where: str) -> Case:
    """The case in nested dictionaries, of the engine that the key sizing its pool belongs to."""
    engine = table.get("engine")
    keys = engine.keys() if isinstance(engine, Mapping) else ()
    kinds = [RECORDED.get(name) for name in RECORDED]
    for kind in kinds:
        if kind.pool_key in keys:
            return kind.parse(table, where)
    raise InputError(
        "no recorded engine's settings",
        where=f"{where}.engine",
        remedy=f"name the pool by one of: {', '.join(kind.pool_key for kind in kinds)}",
    )


def read_case(path: Path) -> Case:
    """The case in a JSON file (`.gz` accepted); InputError names the key at fault."""
    return parse_case(read_object(path), str(path))
