"""What SGLang's scheduler asks of a hierarchical cache (HiCache); one form of it does nothing."""

from abc import abstractmethod
from collections.abc import Iterable

from kvsim.engine.plan import Plan
from kvsim.sequence import Sequence


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
