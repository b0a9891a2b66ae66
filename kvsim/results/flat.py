"""Flatten nested tables of numbers to one row."""

import json
from collections.abc import Mapping
from typing import Any


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of `table` by dotted keys: `memory.time_mean.used`; lists as JSON."""
    row: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            row.update(flat(value, f"{prefix}{key}."))
        else:
            row[prefix + key] = json.dumps(value) if isinstance(value, list | tuple) else value
    return row
