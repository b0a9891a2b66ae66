"""The interface of a step-time form.

Times are integer picoseconds. A form is piecewise affine in the context of its decoding sequences.
So `k` steps of an unchanged batch, with a context that grows by `num_decode` a step, sum in closed
form: step t lasts `first_ps + growth_ps * t`.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from kvsim.step import StepShape


class DecodeRun(NamedTuple):
    """Decode steps of an unchanged batch: step t = 0, 1, ... lasts first_ps + growth_ps * t.

    steps: for how many steps this holds exactly (then ask again); None: without end.
    """

    first_ps: int
    growth_ps: int
    steps: int | None = None


class StepTime(Protocol):
    """The duration of a step. Pure: no state, the same result for the same shape."""

    def step_ps(self, shape: StepShape) -> int:
        """Duration of one step in ps, >= 0; 0 only for an empty step."""
        ...

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Durations of successive pure decode steps.

        context_tokens is that of step 0; each step adds num_decode to it and 1 to the longest.
        Step 0 equals `step_ps` of the same shape, exactly, and so does every step t < steps.
        """
        ...


@runtime_checkable
class Sourced(Protocol):
    """A form that names its measurements."""

    source: str


@runtime_checkable
class Corrected(Protocol):
    """A form corrected by measured points of real servers. served: the kind of servers (see
    HostCost); empty if none were compared.
    """

    served: str


@runtime_checkable
class Measured(Protocol):
    """A form fitted to measurements knows where it extrapolates."""

    def outside_domain(self, shape: StepShape) -> bool:
        """Whether the time of this step (it has a token) goes beyond what was measured. The same
        for all steps of a decode run.
        """
        ...
