"""Cached content that expires at a time."""

from typing import Protocol


class Timed(Protocol):
    """An allocator with cached content that expires at a time."""

    @property
    def next_lapse_ps(self) -> int | None:
        """Time in ps at which cached content next expires; None: nothing expires."""
        ...

    def pass_time(self, now_ps: int) -> None:
        """Set the time to `now_ps`, before a step is scheduled."""
        ...
