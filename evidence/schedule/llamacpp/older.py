"""Cells of llama.cpp of March 2025, where a batch needs neighbouring cells (kind "cells-old")."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from evidence.schedule.llamacpp.operations import (
    CellOperations,
    Operation,
    batch_of,
    without_log,
)
from evidence.schedule.llamacpp.settings import SHAPES, Recorded, written
from evidence.schedule.rows import Row
from kvsim.memory.cells.cache import DONE
from kvsim.memory.cells.field import ScatteredField, open_range
from kvsim.memory.cells.older import PADDING, OlderCache
from kvsim.plumbing.units import ceil_div


class OlderSettings(Recorded):
    """Settings of the recorded context. defrag_thold: see `OlderCache`. kv_unified is ignored: all
    sequences share cells.
    """

    defrag_thold: float = Field(-1.0, le=1)


class OlderCellsCase(CellOperations):
    """Batches, operations on sequences, and moves of cells; a row per operation."""

    recognised_by: ClassVar[str] = "cells-old"
    arguments: ClassVar[Mapping[str, int]] = {
        "decode": 1,
        "rm": 3,
        "cp": 4,
        "keep": 1,
        "add": 4,
        "div": 4,
        "defrag": 0,
        "update": 0,
    }

    kind: Literal["cells-old"]
    settings: OlderSettings

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        steps = expectation.get("steps")
        return without_log(steps) if isinstance(steps, list) else None

    def simulated(self, recorded: list[Row]) -> list[Row]:
        settings = self.settings
        size = ceil_div(settings.n_ctx, PADDING) * PADDING
        micro_batch = min(settings.n_batch, settings.n_ubatch)
        layers = len(SHAPES[self.model].layers)
        cache = OlderCache(size, micro_batch, layers, settings.defrag_thold)
        rows = []
        kept: dict[int, int] = {}
        for op in self.ops:
            answer = _operate(cache, op, kept)
            rows.append({"op": op, **answer, "cells": _cells(cache)})
        return rows


def _operate(cache: OlderCache, op: Operation, kept: dict[int, int]) -> dict[str, Any]:
    """Apply one operation; returns what the real program returned for it.

    kept: end of each sequence before a batch that did not fit. Parts of the batch stay in the
    cache, but later operations do not count them.
    """
    field = cache.field

    def last_position(seq: int) -> int:
        return kept[seq] if seq in kept else field.last_position(seq)

    match op:
        case ["decode", pieces]:
            runs, batch = batch_of(pieces, last_position)
            before = {seq: last_position(seq) for run in runs for seq in run.seqs}
            rc = cache.decode(runs)
            for seq in before:
                kept.pop(seq, None)
            if rc != DONE:
                kept.update(before)
            return {"rc": rc, "batch": batch}
        case ["rm", seq, p0, p1]:
            field.remove(seq, *open_range(p0, p1))
        case ["cp", source, target, p0, p1]:
            field.share(source, target, *open_range(p0, p1))
        case ["keep", seq]:
            field.keep(seq)
        case ["add", seq, p0, p1, delta]:
            field.shift(seq, *open_range(p0, p1), delta)
        case ["div", seq, p0, p1, divisor]:
            field.divide(seq, *open_range(p0, p1), divisor)
        case ["defrag"]:
            cache.request_compacting()
        case ["update"]:
            cache.update()
    kept.clear()
    return {}


def _cells(cache: OlderCache) -> dict[str, Any]:
    """The buffer in the form of recordings: positions as the program's debug view prints them."""
    field = cache.field
    shown = ScatteredField(field.size)
    shown.owners, shown.positions, shown.held = field.owners, cache.displayed(), field.held
    longest, first = field.longest_free()
    return {
        "used": field.used,
        "max_contiguous": longest,
        "max_contiguous_at": first,
        "runs": written(shown.runs()),
    }
