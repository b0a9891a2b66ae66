"""Optional parts of SGLang's scheduler, each in the form that does nothing.

They are the engine's side in prefill-decode disaggregation (--disaggregation-mode), and a
hierarchical cache (HiCache). The scheduler calls them in each pass, without asking which form they
have.
"""

from abc import abstractmethod
from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.memory.allocator import Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence

OUT_OF_MEMORY = "the engine ran out of memory, and no other request could be retracted (500)"


@mypyc_attr(allow_interpreted_subclasses=True)
class EngineSide:
    """The side of an engine without disaggregation: it decodes the prompts that it computes.

    looks_ahead: requests that end by length with the token in flight do not decode again.
    short_head: the request that this side last refused for lack of memory.
    """

    def __init__(self, *, looks_ahead: bool = True) -> None:
        self.looks_ahead = looks_ahead
        self.short_head: Sequence | None = None

    @property
    def busy(self) -> bool:
        """Whether memory is still held for transfers of requests that have ended on this engine."""
        return False

    def refusal(self, request: Request) -> Refusal | None:
        """Why this side could never run `request`; None if it could."""
        return None

    def takes(self, seq: Sequence) -> bool:
        """Whether this side queues a new `seq` for the other engine, so that the scheduler does not
        queue it.
        """
        return False

    # --- a pass ---------------------------------------------------------------------------------

    def begin(self, plan: Plan) -> None:
        """Begin a pass that makes `plan`: process messages from the other engine."""

    def joining(self, plan: Plan, prefilled: list[Sequence]) -> list[Sequence]:
        """Requests that decode from this pass on. prefilled: unfinished requests of the last
        prefill batch.
        """
        return prefilled

    def passes_again(self, plan: Plan) -> bool:
        """Whether another pass follows at once, as `plan` started nothing."""
        return False

    def end(self, plan: Plan) -> None:
        """Called when `plan` is decided."""

    def refuses_to_retract(self, seq: Sequence, *, lone: bool) -> str | None:
        """The error with which `seq` ends instead of being retracted; None: it is retracted.

        lone: no other request decodes (schedule_batch.py, `retract_decode`).
        """
        return OUT_OF_MEMORY if lone else None

    def retracting(self, seq: Sequence, plan: Plan) -> None:
        """Called before `seq` loses its memory and is queued again."""

    def failed(self, seq: Sequence) -> None:
        """Called when `seq` has ended with an error for lack of memory."""

    # --- the life of a plan ---------------------------------------------------------------------

    def computed(self, chunk: ScheduledChunk) -> None:
        """Process a computed prompt chunk; the last chunk of a prompt is in the prefix cache
        already.
        """

    def quiet_steps(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, in which this side has nothing to do."""
        return limit


class HicachePart:
    """Host memory and perhaps a storage of one scheduler."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a copy, a lookup or a write to the storage is in flight."""

    @property
    @abstractmethod
    def copied_bytes(self) -> int:
        """Bytes copied to host memory and back so far."""

    @property
    @abstractmethod
    def loading(self) -> bool:
        """Whether the batch of this pass loads from host memory."""

    # --- a pass ---------------------------------------------------------------------------------

    @abstractmethod
    def arrived(self, seq: Sequence) -> bool:
        """Note a new waiting request; returns whether the next pass may change because of it."""

    @abstractmethod
    def begin(self, queue: Iterable[Sequence], head: Sequence | None) -> None:
        """Begin a pass: process ended copies and answers of the storage."""

    @abstractmethod
    def end(self, plan: Plan) -> None:
        """Called when the pass has made `plan`; sets how long copies delayed it."""

    @abstractmethod
    def skips(self, seq: Sequence) -> bool:
        """Whether admission skips `seq` in this pass, and tries the next one."""

    @abstractmethod
    def host_hit(self, seq: Sequence) -> int:
        """Number of tokens of a pinned `seq` that are in host memory only."""

    @abstractmethod
    def load_back(self, seq: Sequence) -> bool:
        """Allocate slots for the host hit of a pinned `seq` and queue its load; False: the tokens
        are recomputed.
        """

    @abstractmethod
    def submit_loads(self, *, for_step: bool = True) -> None:
        """Submit the queued loads as one copy. for_step: the next step waits for it."""

    @property
    @abstractmethod
    def loads_end_ps(self) -> int:
        """End of the last of the loads submitted so far, in ps; 0 for none."""

    @abstractmethod
    def room_made(self) -> None:
        """Called when memory for the next token of each decoding request is free, before it is
        allocated.
        """

    @abstractmethod
    def retracted(self, seq: Sequence) -> None:
        """`seq` was retracted and waits again."""

    @abstractmethod
    def left(self, seq: Sequence) -> None:
        """Called when `seq` has all its tokens, or ended with an error."""

    # --- the life of a plan ---------------------------------------------------------------------

    @abstractmethod
    def returns_quietly(self, plan: Plan) -> bool:
        """Whether processing the outputs of `plan` leaves later passes unchanged."""

    @abstractmethod
    def quiet_steps(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, in which the cache has nothing to do."""


class NoHicache(HicachePart):
    """No memory after the device's."""

    @property
    def busy(self) -> bool:
        return False

    @property
    def copied_bytes(self) -> int:
        return 0

    @property
    def loading(self) -> bool:
        return False

    def arrived(self, seq: Sequence) -> bool:
        return False

    def begin(self, queue: Iterable[Sequence], head: Sequence | None) -> None:
        return

    def end(self, plan: Plan) -> None:
        return

    def skips(self, seq: Sequence) -> bool:
        return False

    def host_hit(self, seq: Sequence) -> int:
        return 0

    def load_back(self, seq: Sequence) -> bool:
        return False

    def submit_loads(self, *, for_step: bool = True) -> None:
        return

    @property
    def loads_end_ps(self) -> int:
        return 0

    def room_made(self) -> None:
        return

    def retracted(self, seq: Sequence) -> None:
        return

    def left(self, seq: Sequence) -> None:
        return

    def returns_quietly(self, plan: Plan) -> bool:
        return True

    def quiet_steps(self, limit: int) -> int:
        return limit


NO_HICACHE = NoHicache()
