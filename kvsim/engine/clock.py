"""The clock that the engines of a simulation share."""

import simpy


class EngineClock(simpy.Environment):
    """simpy's clock. late: whether a follow-up arrives at this instant after engines have planned,
    as they would have done step by step. num_circling: engines that sleep between copies which, if
    no request came, would go on for ever.
    """

    late = False
    num_circling = 0

    @property
    def only_circles(self) -> bool:
        """Whether nothing can happen any more but such copies."""
        return len(self._queue) <= self.num_circling
