"""Operations on cells that several kinds of recordings share."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import field_validator

from evidence.schedule.llamacpp.settings import ModelName
from evidence.schedule.recording import RecordedCase
from evidence.schedule.rows import Row
from kvsim.memory.cells.cache import SavedState
from kvsim.memory.cells.field import TokenRun
from kvsim.plumbing.errors import InputError

Operation = list[Any]


class CellOperations(RecordedCase):
    """The operations on one context's cells, in order. arguments: number of arguments of each
    operation.
    """

    arguments: ClassVar[Mapping[str, int]]

    kind: str
    model: ModelName
    ops: list[Operation]

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return table.get("kind") == cls.recognised_by

    @field_validator("ops")
    @classmethod
    def _known_operations(cls, ops: list[Operation]) -> list[Operation]:
        for number, op in enumerate(ops):
            name, count = (op[0] if op else None), len(op) - 1
            if not isinstance(name, str) or cls.arguments.get(name) != count:
                known = ", ".join(f"{each} ({num})" for each, num in cls.arguments.items())
                raise ValueError(
                    f"operation {number} is {op!r}; known, with their arguments: {known}"
                )
            if name == "decode":
                _check_batch(op[1], number)
            elif not all(isinstance(each, int | str) for each in op[1:]):
                raise ValueError(f"operation {number} has an argument that is no number or name")
        return ops


def _check_batch(batch: Any, number: int) -> None:
    for piece in batch if isinstance(batch, list) else [None]:
        if not isinstance(piece, list) or len(piece) != 3:
            raise ValueError(f"operation {number}: a piece of a batch is [sequences, number, pos]")
        seqs = piece[0] if isinstance(piece[0], list) else [piece[0]]
        whole = [*seqs, piece[1], 0 if piece[2] is None else piece[2]]
        if not seqs or not all(isinstance(each, int) for each in whole) or piece[1] < 1:
            raise ValueError(f"operation {number}: {piece!r} is no piece of a batch")


def batch_of(
    pieces: list[list[Any]], last_position: Callable[[int], int]
) -> tuple[list[TokenRun], list[list[Any]]]:
    """The tokens of a batch, and its pieces with the positions filled in that were left to the
    program.
    """
    runs: list[TokenRun] = []
    parts: list[list[Any]] = []
    ends: dict[int, int] = {}
    for which, num, given in pieces:
        seqs = tuple(which) if isinstance(which, list) else (which,)
        pos = given
        if pos is None:
            pos = ends.get(seqs[0], last_position(seqs[0])) + 1
        ends.update(dict.fromkeys(seqs, pos + num - 1))
        runs.append(TokenRun(tuple(sorted(seqs)), pos, num))
        parts.append([which, num, pos])
    return runs, parts


def without_log(rows: list[Row]) -> list[Row]:
    """Recorded rows without the program's log lines."""
    return [{key: value for key, value in row.items() if key != "log"} for row in rows]


def saved_by(states: Mapping[str, SavedState], name: str, number: int) -> SavedState:
    """The saved state with this name; InputError if no earlier operation saved one."""
    if name not in states:
        raise InputError("nothing was saved under this name", where=f"ops.{number}", value=name)
    return states[name]
