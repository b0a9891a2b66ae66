"""The parts that SGLang's scheduler holds, each in the form that does nothing.

They are the side of an engine in prefill-decode disaggregation (--disaggregation-mode), and a
hierarchical cache (HiCache). The scheduler calls them in each pass, and never asks which they are.
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
    """The side of an engine without transfers: it decodes what it has computed.

    looks_ahead: requests that end by length with the token in flight decode no more. short_head:
    the one that was refused for memory on this side, when last tried.
    """

    def __init__(self, *, looks_ahead: bool = True) -> None:
        self.looks_ahead = looks_ahead
        self.short_head: Sequence | None = None

    @property
    def busy(self) -> bool:
        """Whether memory is still held for transfers of requests that have ended here."""
        return False

    def refusal(self, request: Request) -> Refusal | None:
        """Why this side could never run `request`; None if it could."""
        return None

    def takes(self, seq: Sequence) -> bool:
        """Whether a new `seq` waits for the other engine, and not in the scheduler's queue."""
        return False

    # --- a pass ---------------------------------------------------------------------------------

    def begin(self, plan: Plan) -> None:
        """A plan is to be made: messages of the other engine are read."""

    def joining(self, plan: Plan, prefilled: list[Sequence]) -> list[Sequence]:
        """The requests that decode from this pass on. prefilled: those of the last prefill batch
        that go on.
        """
        return prefilled

    def passes_again(self, plan: Plan) -> bool:
        """Whether another pass follows one that started nothing, without waiting."""
        return False

    def end(self, plan: Plan) -> None:
        """`plan` is decided."""

    def refuses_to_retract(self, seq: Sequence, *, lone: bool) -> str | None:
        """The error with which `seq` ends instead of being retracted. lone: nobody else decodes
        (schedule_batch.py, `retract_decode`).
        """
        return OUT_OF_MEMORY if lone else None

    def retracting(self, seq: Sequence, plan: Plan) -> None:
        """`seq` is about to lose its memory, and will wait again."""

    def failed(self, seq: Sequence) -> None:
        """`seq` has ended with an error for lack of memory."""

    # --- the life of a plan ---------------------------------------------------------------------

    def computed(self, chunk: ScheduledChunk) -> None:
        """A chunk of a prompt, filed in the prefix cache if it was the last, has returned."""

    def quiet_steps(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, in which no pass finds anything to do here."""
        return limit


class HicachePart:
    """Host memory, and perhaps a storage, of one scheduler."""

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
        """A new request waits. Returns whether the next pass changes because of it."""

    @abstractmethod
    def begin(self, queue: Iterable[Sequence], head: Sequence | None) -> None:
        """A pass begins: ends of copies and answers of the storage are noted."""

    @abstractmethod
    def end(self, plan: Plan) -> None:
        """The pass has made `plan`, held up by the copies that it waited for."""

    @abstractmethod
    def skips(self, seq: Sequence) -> bool:
        """Whether admission skips `seq` in this pass, and tries the next one."""

    @abstractmethod
    def host_hit(self, seq: Sequence) -> int:
        """Tokens of a pinned `seq` in host memory alone."""

    @abstractmethod
    def load_back(self, seq: Sequence) -> bool:
        """Allocate slots for the host hit of a pinned `seq` and queue its load; False: it is
        computed.
        """

    @abstractmethod
    def submit_loads(self) -> None:
        """A batch is formed: what it loads is one copy."""

    @abstractmethod
    def room_made(self) -> None:
        """There is room for the next token of each decoding request, and none is taken yet."""

    @abstractmethod
    def retracted(self, seq: Sequence) -> None:
        """`seq` lost its memory and waits again."""

    @abstractmethod
    def left(self, seq: Sequence) -> None:
        """`seq` has all its tokens, or ended with an error."""

    # --- the life of a plan ---------------------------------------------------------------------

    @abstractmethod
    def returns_quietly(self, plan: Plan) -> bool:
        """Whether the return of `plan` leaves later passes the same."""

    @abstractmethod
    def quiet_steps(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, in which no pass finds anything to do here."""


class NoHicache(HicachePart):
    """There is no memory after the device's."""

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

    def submit_loads(self) -> None:
        return

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
