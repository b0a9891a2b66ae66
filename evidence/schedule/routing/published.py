"""Publications of vLLM's coordinator about its ranks' reports, and their times."""

from itertools import pairwise

from pydantic import Field

from evidence.schedule.routing.case import RoutingCase
from evidence.schedule.rows import Row
from kvsim.fleet.views.coordinator import Coordinator
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_MS

WITHIN_MS = 20.0  # a recording by a real clock
STARTED_PS = -1_000 * PS_PER_MS  # before the first report


class CoordinatorSettings(Options):
    """Settings of the coordinator. lockstep: whether ranks step together. stats_update_interval_ms:
    time between two publications.
    """

    lockstep: bool = False
    stats_update_interval_ms: float = Field(100.0, gt=0)


def published(recording: RoutingCase, recorded: list[Row]) -> list[Row]:
    """A row per publication with new contents. Its time is the recorded one if that is within 20 ms
    of the simulated one.
    """
    settings = CoordinatorSettings.parse(recording.settings, "settings")
    interval_ps = round(settings.stats_update_interval_ms * PS_PER_MS)
    coordinator = Coordinator(
        recording.workers, interval_ps, lockstep=settings.lockstep, start_ps=STARTED_PS
    )
    for event in recording.events:
        if event.event != "report":
            raise recording.unknown(event)
        assert isinstance(event.waiting, int)
        assert isinstance(event.kv, float | int)
        counts = event.waiting, event.running, float(event.kv)
        now_ps = round(event.ms * PS_PER_MS)
        coordinator.heard(event.rank or 0, counts, now_ps, (0, event.step))
    last_ms = recording.until_ms or (recording.events[-1].ms if recording.events else 0)
    made = coordinator.drain(round(last_ms * PS_PER_MS))
    news = [later for before, later in pairwise(made) if later.counts != before.counts]
    rows = []
    for number, publication in enumerate(news):
        at_ms = publication.time_ps / PS_PER_MS
        theirs = recorded[number].get("ms") if number < len(recorded) else None
        near = theirs is not None and abs(theirs - at_ms) <= WITHIN_MS
        loads = [list(each) for each in publication.counts]
        rows.append({"ms": theirs if near else round(at_ms), "counts": loads})
    return rows
