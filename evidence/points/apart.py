"""A disaggregated row as a scenario: each kind of server as its own labels say, one stream.

The servers have the defaults of their engines where the labels do not say otherwise, and a port of
400 Gb/s a GPU. The clients are those of the whole deployment.
"""

from typing import Any, NamedTuple

from evidence.points.rows import Point
from evidence.points.sides import PointSide
from kvsim.plumbing.errors import InputError

# Flags of the scripts for servers that do both are not those of the servers here, but for these.
KEPT_FLAGS = ("kv_cache_dtype",)


class RowsApart(NamedTuple):
    """A disaggregated row as one row for each kind of server, with the clients of all of them.

    num_prefill, num_decode: how many servers of each kind.
    """

    prefill: Point
    decode: Point
    num_prefill: int
    num_decode: int


def side_rows(row: Point) -> RowsApart:
    """The row's servers of both kinds; InputError for a row without them."""
    if row.prefill is None or row.decode is None:
        raise InputError("a disaggregated row names the servers of both kinds",
                         where="mode", value=row.mode,
                         remedy="give columns prefill_tp_size, decode_tp_size, ...")  # fmt: skip
    for name, side in (("prefill", row.prefill), ("decode", row.decode)):
        if side.attention_dp_size > 1:
            raise InputError("a simulation runs one copy of the attention layers of a server",
                             where=f"{name}_attention_dp_size", value=side.attention_dp_size,
                             limit="1")  # fmt: skip
    clients = row.clients(row.decode.num_workers)
    if not row.concurrency and "silicon_concurrency" not in row.silicon_data_source:
        clients = row.decode.num_workers * row.decode.batch_size

    def alone(side: PointSide) -> Point:
        labels = side.model_dump(exclude={"num_workers"})
        return row.model_copy(update={**labels, "mode": "agg", "concurrency": clients})

    return RowsApart(
        alone(row.prefill), alone(row.decode), row.prefill.num_workers, row.decode.num_workers
    )


def both(rows: RowsApart, prefill: dict[str, Any], decode: dict[str, Any]) -> dict[str, Any]:
    """The scenario of both kinds, from that of each alone. vLLM's connectors are simulated as its
    newest version has them, whichever ran.
    """
    for each in (prefill, decode):
        each["scheduler"].pop("semantics", None)
    differs = {
        name: prefill[name]
        for name in ("model", "memory", "scheduler", "step_time")
        if prefill[name] != decode[name]
    }
    return {
        **decode,
        "disaggregation": {
            "prefill": {"replicas": rows.num_prefill, **differs},
            "decode": {"replicas": rows.num_decode},
        },
    }
