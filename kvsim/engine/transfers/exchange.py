"""Transfers of prompts between SGLang's prefill and decode engines, as both sides see them.

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
    """The clock of one engine, and how to wake the engine.

    cut: ends its idle time, or a run of steps after the current step.
    """

    def __init__(self, env: EngineClock, cut: Callable[[], None]) -> None:
        self._env = env
        self._cut = cut

    @property
    def now_ps(self) -> int:
        """The current time in ps."""
        return cast("int", self._env.now)

    def wake_at(self, at_ps: int, unless: Callable[[], bool] | None = None) -> None:
        """Wake the engine at at_ps, except if `unless` is true then."""
        event = self._env.timeout(max(0, at_ps - self.now_ps))
        event.callbacks.append(lambda _: None if unless and unless() else self._cut())


class TransferLink(Protocol):
    """The link that carries KV from one engine to another."""

    def send(
        self, at_ps: int, num_bytes: int, sender: Hashable, receiver: Hashable
    ) -> tuple[int, int]:
        """Queue a transfer of num_bytes that may begin at at_ps; returns its start and end in
        ps.
        """
        ...


class TransferDelays(NamedTuple):
    """Delays of messages between two engines.

    handshake_ps: from the pass of a decode engine that sees a request until its receiver is ready.
    notice_ps: from the allocation of a prompt until the prefill engine knows of it. notify_ps: from
    the end of the last sending until both engines see it. bootstrap_timeout_ps: how long a prefill
    engine waits for an allocation. waiting_timeout_ps: how long a decode engine waits for a prompt
    after its allocation.
    """

    handshake_ps: int = 0
    notice_ps: int = 0
    notify_ps: int = 0
    bootstrap_timeout_ps: int = NEVER
    waiting_timeout_ps: int = NEVER


class Transfer:
    """The KV of one request's prompt on its path from a prefill engine to a decode engine.

    ready_ps: when the receiver is ready. allocated_ps: when the prefill engine knows that the
    decode engine has allocated the prompt. ended_ps: when the decode engine sees that all has
    arrived, or that the transfer has failed. prefill_ended_ps: when the prefill engine sees this.
    Each of these times is NEVER as long as it is not known.

    failure: why the transfer has failed for the decode engine; None if not. lost: the transfer has
    failed for the prefill engine. refused_ps: when the prefill engine gives up without an
    allocation. late_ps: when the decode engine gives up without the whole prompt. sent_ps: end of
    the last sending so far. drained_ps: when the memory of a failed transfer is free. sent_tokens:
    leading tokens of the prompt that were sent, or that the decode engine had.
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
    """The transfers of one deployment by sequence id.

    fails: sequences with a transfer that fails. abandoned: sequences that their clients cancel when
    the prompt is computed. num_bytes: bytes sent so far.
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
        """Return the transfer of a request that has arrived at a prefill engine."""
        transfer = self._of(name)
        transfer.prefill = port
        if transfer.allocated_ps < NEVER:
            port.wake_at(transfer.allocated_ps)
        return transfer

    def ask(self, transfer: Transfer, now_ps: int) -> None:
        """Start the bootstrap timeout: a pass of the prefill engine at now_ps is the first to see
        the request.
        """
        if self._delays.bootstrap_timeout_ps < NEVER and transfer.prefill is not None:
            transfer.refused_ps = now_ps + self._delays.bootstrap_timeout_ps
            refused_ps = transfer.refused_ps
            transfer.prefill.wake_at(refused_ps, lambda: transfer.allocated_ps <= refused_ps)

    def to_receive(self, name: str, port: Port, at_ps: int) -> Transfer:
        """Return the transfer of a request, at at_ps first seen by a pass of a decode engine; its
        handshake begins.
        """
        transfer = self._of(name)
        transfer.decode = port
        transfer.ready_ps = at_ps + self._delays.handshake_ps
        port.wake_at(transfer.ready_ps)
        return transfer

    def _of(self, name: str) -> Transfer:
        return self._transfers.setdefault(name, Transfer())

    def allocate(self, transfer: Transfer, cached_tokens: int, at_ps: int) -> None:
        """Note that a decode engine allocated a prompt at at_ps, of which it has cached_tokens
        tokens already.
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

        Returns the start and end in ps; None if the transfer has failed. last: the prompt is then
        complete.
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
        """The decode engine gives up at now_ps; the prefill engine sees it notice_ps later."""
        self.fail(transfer, LATE, now_ps)

    def fail(self, transfer: Transfer, why: str, now_ps: int) -> None:
        """End a transfer with an error on the decode engine at now_ps; the prefill engine learns of
        it notice_ps later.
        """
        transfer.failure = why
        self._end(transfer, now_ps, now_ps + self._delays.notice_ps, lost=True)

    def drain(self, transfer: Transfer, now_ps: int) -> None:
        """The decode engine sees at now_ps that a transfer has failed.

        Its memory is free when the prefill engine has heard of it, and has answered that nothing is
        being sent any more.
        """
        self._drained(transfer, max(now_ps + self._delays.notice_ps, transfer.sent_ps))

    def _drained(self, transfer: Transfer, answer_ps: int) -> None:
        transfer.drained_ps = answer_ps + self._delays.notice_ps
        if transfer.decode is not None:
            transfer.decode.wake_at(transfer.drained_ps)

    def _end(self, transfer: Transfer, ended_ps: int, prefill_ended_ps: int, *, lost: bool) -> None:
        """Note the end of a transfer for both sides; the earliest end that a side sees counts."""
        transfer.ended_ps = min(transfer.ended_ps, ended_ps)
        if prefill_ended_ps < transfer.prefill_ended_ps:
            transfer.prefill_ended_ps, transfer.lost = prefill_ended_ps, lost
        if transfer.decode is not None:
            transfer.decode.wake_at(transfer.ended_ps)
        if transfer.prefill is not None:
            transfer.prefill.wake_at(transfer.prefill_ended_ps)

    def close(self, name: str) -> None:
        """Drop a transfer that neither side asks for again."""
        self._transfers.pop(name, None)
