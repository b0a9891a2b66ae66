"""Registers the engines with recorded schedules, and reads a case by its kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.schedule.recording import RecordedCase
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.registry import Registry

RECORDED: Registry[RecordedCase] = Registry(
    "recorded engine",
    {
        "router": "evidence.schedule.routing.case:RoutingCase",
        "vllm offload": "evidence.schedule.offload.case:OffloadCase",
        "vllm simple offload": "evidence.schedule.offload_simple.case:SimpleCase",
        "vllm, prefill and decode": "evidence.schedule.vllm_pd.case:VllmPairCase",
        "fleet": "evidence.schedule.fleet.case:FleetCase",
        "vllm": "evidence.schedule.vllm.case:VllmCase",
        "sglang hicache": "evidence.schedule.sglang.hicache:HicacheCase",
        "sglang, data-parallel attention": "evidence.schedule.sglang_dp.case:RanksCase",
        "sglang, stages": "evidence.schedule.sglang.staged:MicroBatchCase",
        "sglang": "evidence.schedule.sglang.case:SglangCase",
        "sglang, prefill and decode": "evidence.schedule.sglang_pd.case:SglangPairCase",
        "sglang windows": "evidence.schedule.sglang.hybrid:WindowsCase",
        "sglang states": "evidence.schedule.sglang.hybrid:StatesCase",
        "llama.cpp cells": "evidence.schedule.llamacpp.cells:CellsCase",
        "llama-server": "evidence.schedule.llamacpp.server:ServerCase",
        "llama.cpp cells of March 2025": "evidence.schedule.llamacpp.older:OlderCellsCase",
    },
)


def parse_case(table: Mapping[str, Any], where: str) -> RecordedCase:
    """Parse a case from nested dicts, as the kind of case that recognises it."""
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
    """Read a case from a JSON file (`.gz` accepted); InputError names the key at fault."""
    return parse_case(read_object(path), str(path))
