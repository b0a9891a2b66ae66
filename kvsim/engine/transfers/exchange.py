"""Transfers through which the prefill and decode engines of one deployment find each other's
requests.

Both sides hold the same `Transfer` for a request. An action of one side becomes visible to the
other at a given time, and the other engine is woken then. An engine looks at its transfers once in
each pass, and never in the middle of a step.
"""

from collections.abc import Callable, Container, Hashable
from typing import NamedTuple, Protocol, cast

from kvsim.engine.clock import EngineClock

NEVER = 1 << 62  # ps
ABANDONED = "its client left when the prompt was computed"
FAILED = "the transfer of its prompt failed"
LATE = "its prompt did not arrive within waiting_timeout"
REFUSED = "no decode engine had room for it within bootstrap_timeout"


class Port:
    """The clock of one engine and the way to wake it.

    cut: ends its idle time, or a run of steps with the current step.
    """

    def __init__(self, env: EngineClock, cut: Callable[[], None]) -> None:
        self._env = env
        self._cut = cut

    @property
    def now_ps(self) -> int:
        """The current time."""
        return cast("int", self._env.now)

    def wake_at(self, at_ps: int, unless: Callable[[], bool] | None = None) -> None:
        """The engine has something to look at from at_ps on, `unless` that is settled by then."""
        event = self._env.timeout(max(0, at_ps - self.now_ps))
        event.callbacks.append(lambda _: None if unless and unless() else self._cut())


class TransferLink(Protocol):
    """The link that carries KV from one engine to another."""

    def send(
        self, at_ps: int, num_bytes: int, sender: Hashable, receiver: Hashable
    ) -> tuple[int, int]:
        """Start and end in ps of a transfer of `num_bytes`, which may begin at at_ps."""
        ...


class TransferDelays(NamedTuple):
    """handshake_ps: from the pass of a decode engine that sees a request until its receiver is
    ready. notice_ps: until the prefill engine knows that room was allocated. notify_ps: from the
    end of the last sending until both engines see it. bootstrap_timeout_ps: how long a prefill
    engine waits for room at a decode engine. waiting_timeout_ps: how long a decode engine keeps
    room for a prompt that does not arrive.
    """

    handshake_ps: int = 0
    notice_ps: int = 0
    notify_ps: int = 0
    bootstrap_timeout_ps: int = NEVER
    waiting_timeout_ps: int = NEVER


class Transfer:
    """The KV of one request's prompt, on its way.

    ready_ps: the receiver is ready. allocated_ps: the prefill engine knows that the decode engine
    has room. ended_ps: the decode engine sees that all has arrived, or that the transfer has
    failed. prefill_ended_ps: so does the prefill engine. Each is NEVER until then. failure: why
    the transfer has failed for the decode engine; None if not. lost: it has for the prefill engine.
    refused_ps: the prefill engine gives up unless it knows of room before. late_ps: so does the
    decode engine unless all has arrived before. sent_ps: end of the last sending so far.
    drained_ps: the room of a failed transfer is free. sent_tokens: leading tokens of the prompt
    that the decode engine has or that were sent.
    """

    __slots__ = (
        *("allocated_ps", "decode", "drained_ps", "ended_ps", "failure", "late_ps", "lost"),
        *("prefill", "ready_ps", "refused_ps", "sent_ps", "sent_tokens", "prefill_ended_ps"),
    )

    def __init__(self) -> None:
        self.prefill: Port | None = None
        self.decode: Port | None = None
        self.ready_ps = self.allocated_ps = self.ended_ps = self.prefill_ended_ps = NEVER
        self.refused_ps = self.late_ps = NEVER
        self.failure: str | None = None
        self.lost = False
        self.drained_ps = NEVER
        self.sent_ps = self.sent_tokens = 0


class Exchange:
    """The transfers of one deployment by the names of their sequences.

    fails: sequences with a transfer that fails; abandoned: sequences of clients that leave when the
    prompt is computed. num_bytes: sent so far.
    """

    def __init__(
        self,
        link: TransferLink,
        delays: TransferDelays,
        fails: Container[str] = (),
        abandoned: Container[str] = (),
    ) -> None:
        self._link = link
        self._fails, self._abandoned = fails, abandoned
        self._delays = delays
        self._transfers: dict[str, Transfer] = {}
        self.num_bytes = 0

    def to_send(self, name: str, port: Port) -> Transfer:
        """The transfer of a request that a prefill engine has received."""
        transfer = self._of(name)
        transfer.prefill = port
        if transfer.allocated_ps < NEVER:
            port.wake_at(transfer.allocated_ps)
        return transfer

    def ask(self, transfer: Transfer, now_ps: int) -> None:
        """A pass of the prefill engine at now_ps sees the request first, and waits from then on."""
        if self._delays.bootstrap_timeout_ps < NEVER and transfer.prefill is not None:
            transfer.refused_ps = now_ps + self._delays.bootstrap_timeout_ps
            refused_ps = transfer.refused_ps
            transfer.prefill.wake_at(refused_ps, lambda: transfer.allocated_ps <= refused_ps)

    def to_receive(self, name: str, port: Port, at_ps: int) -> Transfer:
        """The transfer of a request that a pass of a decode engine at at_ps sees first."""
        transfer = self._of(name)
        transfer.decode = port
        transfer.ready_ps = at_ps + self._delays.handshake_ps
        port.wake_at(transfer.ready_ps)
        return transfer

    def _of(self, name: str) -> Transfer:
        return self._transfers.setdefault(name, Transfer())

    def allocate(self, transfer: Transfer, cached_tokens: int, at_ps: int) -> None:
        """Allocate a prompt on a decode engine at at_ps; `cached_tokens` of it are there
        already.
        """
        transfer.sent_tokens = cached_tokens
        transfer.allocated_ps = at_ps + self._delays.notice_ps
        if transfer.prefill is not None:
            transfer.prefill.wake_at(transfer.allocated_ps)
        if self._delays.waiting_timeout_ps < NEVER and transfer.decode is not None:
            transfer.late_ps = at_ps + self._delays.waiting_timeout_ps
            late_ps = transfer.late_ps
            transfer.decode.wake_at(late_ps, lambda: transfer.ended_ps <= late_ps)

    def send(
        self, name: str, transfer: Transfer, tokens: int, num_bytes: int, at_ps: int, *, last: bool
    ) -> tuple[int, int] | None:
        """Send the next `tokens` tokens from at_ps on, or as soon as the link is free.

        Returns the start and end in ps, None if the transfer has failed. last: with them all has
        been sent.
        """
        if last and name in self._abandoned and transfer.failure is None:
            transfer.failure = ABANDONED
            self._end(transfer, at_ps, at_ps, lost=True)
        if transfer.lost and transfer.prefill_ended_ps <= at_ps:
            return None
        start_ps, end_ps = self._link.send(at_ps, num_bytes, transfer.prefill, transfer.decode)
        transfer.sent_ps = end_ps
        if transfer.drained_ps < end_ps + self._delays.notice_ps:
            self._drained(transfer, end_ps)
        transfer.sent_tokens += tokens
        self.num_bytes += num_bytes
        if last:
            if name in self._fails and transfer.failure is None:
                transfer.failure = FAILED
            seen_ps = end_ps + self._delays.notify_ps
            self._end(transfer, seen_ps, seen_ps, lost=transfer.failure == FAILED)
        return start_ps, end_ps

    def late(self, transfer: Transfer, now_ps: int) -> None:
        """A decode engine gives up; the prefill engine sees it one notice later."""
        transfer.failure = LATE
        self._end(transfer, now_ps, now_ps + self._delays.notice_ps, lost=True)

    def drain(self, transfer: Transfer, now_ps: int) -> None:
        """A decode engine sees at now_ps that a transfer has failed. Its room is free when the
        prefill engine has heard of it, and has answered that nothing is being sent any more.
        """
        self._drained(transfer, max(now_ps + self._delays.notice_ps, transfer.sent_ps))

    def _drained(self, transfer: Transfer, answer_ps: int) -> None:
        transfer.drained_ps = answer_ps + self._delays.notice_ps
        if transfer.decode is not None:
            transfer.decode.wake_at(transfer.drained_ps)

    def _end(self, transfer: Transfer, ended_ps: int, prefill_ended_ps: int, *, lost: bool) -> None:
        """The first end that each side sees is the one that counts."""
        transfer.ended_ps = min(transfer.ended_ps, ended_ps)
        if prefill_ended_ps < transfer.prefill_ended_ps:
            transfer.prefill_ended_ps, transfer.lost = prefill_ended_ps, lost
        if transfer.decode is not None:
            transfer.decode.wake_at(transfer.ended_ps)
        if transfer.prefill is not None:
            transfer.prefill.wake_at(transfer.prefill_ended_ps)

    def close(self, name: str) -> None:
        """Neither side asks for this transfer again."""
        self._transfers.pop(name, None)
