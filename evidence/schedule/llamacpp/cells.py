"""Cells of llama.cpp's KV cache after each operation (kind "cells")."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from evidence.schedule.llamacpp.operations import (
    CellOperations,
    Operation,
    batch_of,
    saved_by,
    without_log,
)
from evidence.schedule.llamacpp.settings import Recorded, RecordedContext
from evidence.schedule.rows import Row
from kvsim.memory.cells.cache import SavedState


class CellsCase(CellOperations):
    """Batches, operations on sequences, and saved states; a row per operation, after one with the
    sizes.
    """

    recognised_by: ClassVar[str] = "cells"
    arguments: ClassVar[Mapping[str, int]] = {
        "decode": 1,
        "rm": 3,
        "cp": 4,
        "keep": 1,
        "add": 4,
        "div": 4,
        "save": 2,
        "restore": 2,
        "save_all": 1,
        "restore_all": 1,
    }

    kind: Literal["cells"]
    settings: Recorded

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        geometry, steps = expectation.get("geometry"), expectation.get("steps")
        if not isinstance(steps, list):
            return None
        return [{"geometry": geometry}, *without_log(steps)]

    def simulated(self, recorded: list[Row]) -> list[Row]:
        found = RecordedContext(self.settings.context_settings(), self.model)
        states: dict[str, SavedState] = {}
        rows: list[Row] = [{"geometry": found.geometry()}]
        for number, op in enumerate(self.ops):
            answer = _operate(found, states, op, number)
            rows.append({"op": op, **answer, "cells": found.cells()})
        return rows


def _operate(
    found: RecordedContext, states: dict[str, SavedState], op: Operation, number: int
) -> dict[str, Any]:
    """Apply one operation; returns what the real program returned for it."""
    cache = found.cache
    match op:
        case ["decode", pieces]:
            runs, batch = batch_of(pieces, cache.last_position)
            return {"rc": cache.decode(runs), "batch": batch}
        case ["rm", seq, p0, p1]:
            cache.remove(seq, p0, p1)
            return {"rc": True}
        case ["cp", source, target, p0, p1]:
            cache.share(source, target, p0, p1)
        case ["keep", seq]:
            cache.keep(seq)
        case ["add", seq, p0, p1, delta]:
            cache.shift(seq, p0, p1, delta)
        case ["div", seq, p0, p1, divisor]:
            cache.divide(seq, p0, p1, divisor)
        case ["save", seq, name]:
            states[name] = cache.save(seq)
            return {"bytes": states[name].num_bytes}
        case ["restore", seq, name]:
            state = saved_by(states, name, number)
            return {"rc": state.num_bytes if cache.restore(state, seq) else 0}
        case ["save_all", name]:
            states[name] = cache.save()
        case ["restore_all", name]:
            cache.restore_all(saved_by(states, name, number))
    return {}
