"""The engines with recorded schedules, a folder and a line or more each, and how a case is
read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.registry import Registry
from kvsim.validate.schedule.recording import RecordedCase

RECORDED: Registry[RecordedCase] = Registry(
    "recorded engine",
    {
        "router": "kvsim.validate.schedule.routing.case:RoutingCase",
        "vllm offload": "kvsim.validate.schedule.offload.case:OffloadCase",
        "vllm simple offload": "kvsim.validate.schedule.offload_simple.case:SimpleCase",
        "vllm, prefill and decode": "kvsim.validate.schedule.vllm_pd.case:VllmPairCase",
        "fleet": "kvsim.validate.schedule.fleet.case:FleetCase",
        "vllm": "kvsim.validate.schedule.vllm.case:VllmCase",
        "sglang hicache": "kvsim.validate.schedule.sglang.hicache:HicacheCase",
        "sglang": "kvsim.validate.schedule.sglang.case:SglangCase",
        "sglang, prefill and decode": "kvsim.validate.schedule.sglang_pd.case:SglangPairCase",
        "sglang windows": "kvsim.validate.schedule.sglang.hybrid:WindowsCase",
        "sglang states": "kvsim.validate.schedule.sglang.hybrid:StatesCase",
        "llama.cpp cells": "kvsim.validate.schedule.llamacpp.cells:CellsCase",
        "llama-server": "kvsim.validate.schedule.llamacpp.server:ServerCase",
        "llama.cpp cells of March 2025": "kvsim.validate.schedule.llamacpp.older:OlderCellsCase",
    },
)


def parse_case(table: Mapping[str, Any], where: str) -> RecordedCase:
    """The case in nested dictionaries, of the kind that knows it for its own."""
    kinds = [RECORDED.get(name) for name in RECORDED]
    for kind in kinds:
        if kind.recognises(table):
            return kind.parse(table, where)
    names = dict.fromkeys(kind.recognised_by for kind in kinds)  # two kinds may share a key
    raise InputError(
        "no recorded engine's settings",
        where=f"{where}.engine",
        remedy=f"name the pool, or the kind of a case, by one of: {', '.join(names)}",
    )


def read_case(path: Path) -> RecordedCase:
    """The case in a JSON file (`.gz` accepted); InputError names the key at fault."""
    return parse_case(read_object(path), str(path))
