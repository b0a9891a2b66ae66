"""The clock that the engines of a simulation share."""

import simpy


class EngineClock(simpy.Environment):
    """simpy's clock, shared by all engines of a simulation.

    late: a follow-up arrives at this instant after engines have planned, as it would in a
    step-by-step run. num_circling: engines that sleep between copies in an endless loop of copies,
    which only a request can end.
    """

    late = False
    num_circling = 0

    @property
    def only_circles(self) -> bool:
        """Whether the only events left are polls of engines in an endless loop of copies."""
        return len(self._queue) <= self.num_circling
