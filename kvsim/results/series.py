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
# Units of so many bytes that moved from one class to another in a row of the series, after its
# first step: summed over its steps and over its time, as the lower LOW_BITS and the rest.
MOVE_COLUMNS = (
    *("row", "source", "target", "unit_bytes"),
    *("steps_low", "steps_high", "ps_low", "ps_high"),
)
LOW_BITS: Final = 62
