"""A disaggregated row as a scenario: prefill and decode servers by their own labels, one stream.

If the labels do not say otherwise, servers have their engine's defaults, and each GPU has a port of
400 Gb/s. The number of clients is that of the whole deployment.
"""

from typing import Any, NamedTuple

from evidence.points.rows import Point
from evidence.points.sides import PointSide
from kvsim.plumbing.errors import InputError

# Flags of the scripts for servers that do both are not those of the servers here, but for these.
KEPT_FLAGS = ("kv_cache_dtype",)


class RowsApart(NamedTuple):
    """A disaggregated row split into one row per kind of server, with the clients of the
    deployment.

    num_prefill, num_decode: number of servers of each kind.
    """

    prefill: Point
    decode: Point
    num_prefill: int
    num_decode: int


def side_rows(row: Point) -> RowsApart:
    """The row's prefill and decode servers; InputError for a row that does not describe both."""
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
    """The scenario with prefill and decode servers, from the scenario of each. vLLM's connectors
    are simulated as in its newest version, whichever version ran.
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
