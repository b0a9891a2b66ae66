"""The rows of a table of measured points, by the columns of AISimulate's accuracy set.

A row needs id, backend, model_path, system, isl, osl, tp_size, silicon_ttft_ms and silicon_tpot_ms.
Pairs of columns NAME_ttft_ms and NAME_tpot_ms are another tool's estimates of the same row.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt

from evidence.points.sides import PointSide, side_of
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.csv_rows import columns, header_of, records
from kvsim.plumbing.reading.files import read_text

NEEDED = (
    *("id", "backend", "model_path", "system", "isl", "osl", "tp_size"),
    *("silicon_ttft_ms", "silicon_tpot_ms"),
)
MEASURED = "silicon"
Half = Literal["fit", "judge"]
Servers = Literal["in the row", "in another row of the measurement", "not said, one of each"]
_CLIENTS = re.compile(r"silicon_concurrency=(\d+)")
_ESTIMATE = re.compile(r"(.+)_(ttft|tpot)_ms")


def _one_if_zero(value: object) -> object:
    """1 instead of 0: a model without experts is labelled as splitting them over 0 GPUs."""
    return 1 if value in ("0", 0) else value


Ways = Annotated[PositiveInt, BeforeValidator(_one_if_zero)]
Milliseconds = Annotated[float, Field(gt=0)]


class Point(Options):
    """A measured point and its labels, under the names of the columns.

    isl, osl: nominal prompt and output tokens. batch_size: requests in flight per copy of the
    attention layers. concurrency: requests in flight at the whole server (0: as silicon_data_source
    says, else copies * batch_size). prefill, decode: the servers of a disaggregated row.
    silicon_ttft_ms, silicon_tpot_ms: measured means in milliseconds. estimates: (TTFT, TPOT) in
    milliseconds by name of another tool. servers: where the numbers of servers come from.
    """

    id: str
    silicon_data_source: str = ""
    backend: str
    backend_version: str = ""
    model_path: str
    system: str
    precision: str = ""
    mode: str = "agg"
    isl: PositiveInt
    osl: PositiveInt
    gemm_quant_mode: str = ""
    moe_quant_mode: str = ""
    batch_size: PositiveInt = 1
    concurrency: int = Field(0, ge=0)
    tp_size: Ways = 1
    pp_size: Ways = 1
    attention_dp_size: Ways = 1
    moe_tp_size: Ways = 1
    moe_ep_size: Ways = 1
    prefill: PointSide | None = None
    decode: PointSide | None = None
    silicon_ttft_ms: Milliseconds
    silicon_tpot_ms: Milliseconds
    estimates: dict[str, tuple[float, float]] = Field(default_factory=dict)
    servers: Servers = "in the row"

    @property
    def counted(self) -> bool:
        """Whether the row gives the number of servers of each kind."""
        sides = (self.prefill, self.decode)
        return all(side is None or side.counted for side in sides)

    @property
    def half(self) -> Half:
        """The half that the point belongs to: "judge" if the SHA-256 of its id begins with 0 to 7,
        else "fit".
        """
        return "judge" if sha256(self.id.encode()).digest()[0] < 0x80 else "fit"

    def clients(self, copies: int) -> int:
        """Requests in flight at the whole server, if it has `copies` copies of the attention
        layers.
        """
        written = _CLIENTS.search(self.silicon_data_source)
        noted = int(written[1]) if written else 0
        return self.concurrency or noted or copies * self.batch_size


def read_points(path: Path) -> list[Point]:
    """All rows of the file. InputError names the file, the line and the column of a fault."""
    text = read_text(path)
    columns(text, NEEDED)
    tools = _tools(header_of(text.lines[0]))
    rows: list[Point] = []
    lines: dict[str, int] = {}
    for line, cells in records(text):
        where = f"{path}:{line}"
        table: dict[str, Any] = {
            key: cells[key].strip()
            for key in Point.model_fields
            if key != "servers" and cells.get(key, "").strip()
        }
        if table.get("mode", "agg") != "agg" and not table.get("tp_size"):
            table["tp_size"] = 1  # its two servers have splits of their own
            table["batch_size"] = table.get("batch_size") or 1
        table.update({side: side_of(cells, side, where) for side in ("prefill", "decode")})
        row = Point.parse({**table, "estimates": _estimates(cells, tools, where)}, where)
        if row.id in lines:
            raise InputError(
                "an id occurs twice",
                where=where,
                value=row.id,
                limit=f"first on line {lines[row.id]}",
                remedy="give every row an id of its own",
            )
        lines[row.id] = line
        rows.append(row)
    if not rows:
        raise InputError("the table has no rows", where=str(path))
    return _with_servers(rows)


def _with_servers(rows: list[Point]) -> list[Point]:
    """The rows, where a row without numbers of servers takes them from a row with the same
    measurement. A table may contain one measurement under several labels.
    """
    known = {_measurement(row): row for row in reversed(rows) if row.prefill and row.counted}
    found = []
    for row in rows:
        if not row.counted:
            whole = known.get(_measurement(row))
            update: dict[str, Any] = {"servers": "not said, one of each"}
            if whole is not None:
                update = {
                    "servers": "in another row of the measurement",
                    "prefill": whole.prefill,
                    "decode": whole.decode,
                }
            row = row.model_copy(update=update)
        found.append(row)
    return found


def _measurement(row: Point) -> tuple[object, ...]:
    """A key that identifies a measurement: its latencies to nine digits, and its load."""
    latencies = (f"{ms:.8e}" for ms in (row.silicon_ttft_ms, row.silicon_tpot_ms))
    return (row.backend, row.system, row.precision, row.mode, row.isl, row.osl, *latencies)


def _tools(header: list[str]) -> list[str]:
    """Names of the tools for which the header has both latency columns."""
    found: dict[str, set[str]] = {}
    for name in header:
        if match := _ESTIMATE.fullmatch(name):
            found.setdefault(match[1], set()).add(match[2])
    return [tool for tool, both in found.items() if len(both) > 1 and tool != MEASURED]


def _estimates(
    cells: dict[str, str], tools: list[str], where: str
) -> dict[str, tuple[float, float]]:
    found = {}
    for tool in tools:
        names = [f"{tool}_{latency}_ms" for latency in ("ttft", "tpot")]
        if not all(cells.get(name) for name in names):
            continue
        try:
            ttft_ms, tpot_ms = (float(cells[name]) for name in names)
        except ValueError:
            written = ", ".join(cells[name] for name in names)
            raise InputError("not a number", where=f"{where}: {names[0]}", value=written) from None
        found[tool] = (ttft_ms, tpot_ms)
    return found


def with_estimates(rows: Sequence[Point], path: Path) -> list[Point]:
    """The rows with another tool's estimates from a file added. The file may lack rows, or have
    others.
    """
    text = read_text(path)
    columns(text, ("id",))
    tools = _tools(header_of(text.lines[0]))
    if not tools:
        raise InputError("no tool's estimates are in it", where=str(path),
                         remedy="add columns NAME_ttft_ms and NAME_tpot_ms")  # fmt: skip
    found = {
        cells["id"]: _estimates(cells, tools, f"{path}:{line}")
        for line, cells in records(text)
        if "id" in cells
    }
    return [
        row.model_copy(update={"estimates": {**row.estimates, **found.get(row.id, {})}})
        for row in rows
    ]
