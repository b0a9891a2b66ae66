"""Writes calibration/kernels/host.json with one entry per line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(table: Mapping[str, Any], out: Path) -> None:
    """Write the table: its source, then lists of entries by name."""
    parts = [f'"source": {json.dumps(table["source"])}']
    for name, entries in table.items():
        if name != "source":
            lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
            parts.append(f'"{name}": [\n{lines}\n ]')
    out.write_text("{" + ",\n ".join(parts) + "}\n", encoding="utf-8")
