"""A schedule recorded from SGLang without host memory."""

from collections.abc import Mapping
from typing import Any

from evidence.schedule.sglang.schedule import SglangSchedule


class SglangCase(SglangSchedule):
    """A schedule of one SGLang engine without host memory; other cases have other kinds."""

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        if not super().recognises(table):
            return False
        return not ({"hicache", "ranks", "stages"} & table.keys() or "kind" in table["engine"])
