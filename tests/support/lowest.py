"""The lowest versions that pyproject.toml declares, one requirement a line: `make lowest`."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def lowest(project: dict[str, object], extras: tuple[str, ...] = ("test",)) -> list[str]:
    """`name==version` of each requirement with a lower bound; torch and triton are left out, which
    the simulator does not need.
    """
    optional = project["optional-dependencies"]
    assert isinstance(optional, dict)
    wanted = [*project["dependencies"], *(each for extra in extras for each in optional[extra])]  # type: ignore[misc]  # a list
    found = (re.match(r"([A-Za-z0-9_.-]+)\s*(?:>=|==)\s*([0-9.]+)", each) for each in wanted)
    return [f"{m[1]}=={m[2]}" for m in found if m and m[1] not in ("torch", "triton")]


if __name__ == "__main__":
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    print("\n".join(lowest(table["project"], tuple(sys.argv[1:]) or ("test",))))
