"""Replays a recorded case step by step."""

from evidence.schedule.case import Case
from evidence.schedule.rows import Row


def simulate_rows(case: Case, *, stall_once: bool = False) -> list[Row]:
    """The rows that kvsim produces for `case`, one per step."""
    return case.replayed(stall_once=stall_once)
