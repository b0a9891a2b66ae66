"""What the engine tells an allocator of time: content may be kept until a moment."""

from typing import Protocol


class Timed(Protocol):
    """Content of which some lapses. next_lapse_ps: when, next; None: none does."""

    @property
    def next_lapse_ps(self) -> int | None:
        """The next moment at which content lapses, in ps; None: none does."""
        ...

    def pass_time(self, now_ps: int) -> None:
        """It is now_ps, and a step is about to be scheduled."""
        ...
