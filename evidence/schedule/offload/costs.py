"""Costs of a recorded schedule's copies, in ticks."""

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
        """An idle link direction of this speed."""
        speed = self.bytes_per_tick * PS_PER_S // TICK_PS
        return Lane(self.latency * TICK_PS, speed, TICK_PS, queued=queued)


class DiskCost(Options):
    """Cost of a file system's copies: one copy a chunk; lookup: ticks for one key."""

    read: CopyCost
    write: CopyCost
    lookup: int = Field(ge=0)


class TransferCost(Options):
    """How long copies take. idle: ticks that an engine without work sleeps between two polls.
    launch: ticks from the launch of a step to the question which copies have ended. launch_empty:
    an iteration without tokens takes them too, as on the clock of cases 180 to 231.
    """

    store: CopyCost
    load: CopyCost
    disk: DiskCost | None = None
    idle: int = Field(1000, ge=1)
    launch: int = Field(0, ge=0)
    launch_empty: bool = False

    def timed(self, connector: AnyConnector) -> AnyConnector:
        """A connector with this polling interval and delay of its engine."""
        connector.idle_ps, connector.poll_ps = self.idle * TICK_PS, self.launch * TICK_PS
        connector.empty_poll_ps = connector.poll_ps if self.launch_empty else 0
        return connector


def connector_of(table: Mapping[str, Any]) -> object:
    """The name of the KV connector that a recorded case had."""
    engine = table.get("engine")
    offload = engine.get("offload") if isinstance(engine, Mapping) else None
    return offload.get("connector") if isinstance(offload, Mapping) else None
