"""The same requests whatever max_model_len becomes."""

import copy
from typing import Any

NAME = "max_model_len"


def pinned(table: dict[str, Any], max_model_len: int) -> dict[str, Any]:
    """The tables with the workload's limits that follow max_model_len held at this many tokens, so
    that a change of it changes what is served and not what is asked.
    """
    table = copy.deepcopy(table)
    workload = table.get("workload")
    if isinstance(workload, dict):
        workload.update({key: max_model_len for key, value in workload.items() if value == NAME})
    return table
