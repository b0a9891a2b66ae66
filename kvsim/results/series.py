"""The columns of the rows that a recorder writes."""

from typing import Final

from kvsim.memory.ledger import CLASSES

SERIES_COLUMNS: tuple[str, ...] = (
    "start_ps",
    "end_ps",
    "steps",
    "num_running",
    "num_waiting",
    *(f"{name}_bytes" for name in CLASSES),
    *(f"{name}_end_bytes" for name in CLASSES),
)
# Units that moved from one class to another in a row of the series, after its first step: summed
# over its time and over its steps, as the lower LOW_BITS and the rest. kind: the place of the two
# classes and of the bytes of a unit among those of the recorder.
MOVE_COLUMNS = ("row", "kind", "ps_low", "ps_high", "steps_low", "steps_high")
LOW_BITS: Final = 62
