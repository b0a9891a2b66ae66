"""Durations of copies in a recorded schedule, in ticks."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field

from evidence.schedule.ticks import TICK_PS
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.lane import Lane
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S

AnyConnector = TypeVar("AnyConnector", bound=Connector)


class CopyCost(Options):
    """Ticks of a copy: latency + bytes / bytes_per_tick, rounded up."""

    latency: int = Field(ge=0)
    bytes_per_tick: int = Field(ge=1)

    def lane(self, *, queued: bool = True) -> Lane:
        """A link direction with this speed and an empty queue."""
        speed = self.bytes_per_tick * PS_PER_S // TICK_PS
        return Lane(self.latency * TICK_PS, speed, TICK_PS, queued=queued)


class DiskCost(Options):
    """Duration of a file system's copies, one per chunk. lookup: ticks per key looked up."""

    read: CopyCost
    write: CopyCost
    lookup: int = Field(ge=0)


class TransferCost(Options):
    """Durations of copies and delays of the engine, in ticks.

    idle: time that an engine without work sleeps between two polls. launch: from the launch of a
    step to the poll for finished copies. launch_empty: whether an iteration without tokens has this
    delay too, as in cases 180 to 231.
    """

    store: CopyCost
    load: CopyCost
    disk: DiskCost | None = None
    idle: int = Field(1000, ge=1)
    launch: int = Field(0, ge=0)
    launch_empty: bool = False

    def timed(self, connector: AnyConnector) -> AnyConnector:
        """The connector with the engine's polling interval and launch delay set."""
        connector.idle_ps, connector.poll_ps = self.idle * TICK_PS, self.launch * TICK_PS
        connector.empty_poll_ps = connector.poll_ps if self.launch_empty else 0
        return connector


def connector_of(table: Mapping[str, Any]) -> object:
    """Name of the KV connector in a recorded case."""
    engine = table.get("engine")
    offload = engine.get("offload") if isinstance(engine, Mapping) else None
    return offload.get("connector") if isinstance(offload, Mapping) else None
