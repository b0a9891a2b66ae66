"""Observer of one replica for the router: first tokens, and load reports."""

from collections.abc import Callable

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.record import free_share
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.fleet.load import Load
from kvsim.request import Request

Heard = Callable[[Load, int], None]


class ReplicaWatch(Observer):
    """Reports a replica's first tokens (`prefilled`) and changed loads (`heard`): the state after
    each step, and arrivals before the next.

    Requests that arrive while a step computes are reported at its end. needs_tokens: loads include
    KV tokens, and are reported when these change. also: another observer to call.
    """

    def __init__(
        self,
        prefilled: Callable[[str, int], None] | None,
        heard: Heard | None,
        *,
        needs_tokens: bool = False,
        also: Observer | None = None,
    ) -> None:
        self._prefilled = prefilled
        self._heard = heard
        self._needs_tokens = needs_tokens
        self._also = also
        self._unseen = 0
        self._waiting: dict[str, int] = {}  # tokens of each request in the queue
        self._waiting_tokens = 0
        self._last: tuple[int, int, float, int] = (0, 0, 0.0, 0)

    def arrived(self, scheduler: Scheduler, request: Request, now_ps: int) -> None:
        self._unseen += request.n
        self._waits(request.id, request.prompt_tokens)
        if self._also is not None:
            self._also.arrived(scheduler, request, now_ps)

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        self._unseen = 0
        self._report(scheduler, now_ps)
        if self._also is not None:
            self._also.planning(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for seq, _, _ in plan.admitted:
            self._waits(seq.request.id, 0)
        for seq in plan.preempted:
            self._waits(seq.request.id, seq.num_tokens)
        if self._also is not None:
            self._also.planned(scheduler, plan, now_ps)

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        if self._prefilled is not None:
            for chunk in plan.chunks:
                if chunk.samples and chunk.seq.first_token_ps == now_ps:
                    self._prefilled(chunk.seq.request.id, now_ps)
        self._report(scheduler, now_ps)
        if self._also is not None:
            self._also.finished(scheduler, plan, now_ps)

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        return self._also is not None and self._also.idle(scheduler, now_ps, stalled=stalled)

    def _report(self, scheduler: Scheduler, now_ps: int) -> None:
        if self._heard is None:
            return
        unseen = min(self._unseen, len(scheduler.waiting))
        if not self._needs_tokens:
            counts = len(scheduler.waiting) - unseen, len(scheduler.running)
            if counts == self._last[:2]:
                return
        tokens = self._tokens(scheduler) if self._needs_tokens else 0
        waiting, running = len(scheduler.waiting) - unseen, len(scheduler.running)
        told = waiting, running, 1 - free_share(scheduler.allocator), tokens
        if told != self._last:
            self._last = told
            self._heard(Load(*told, written_ps=now_ps), now_ps)

    def _tokens(self, scheduler: Scheduler) -> int:
        """Number of KV tokens in use plus the tokens of waiting prompts."""
        allocator = scheduler.allocator
        used = allocator.usage(None, busy=True).used // max(1, allocator.token_bytes)
        return used + (self._waiting_tokens if len(scheduler.waiting) else 0)

    def _waits(self, id: str, tokens: int) -> None:
        """Count a queued request of `tokens` tokens from now on."""
        if self._needs_tokens:
            self._waiting_tokens += tokens - self._waiting.pop(id, 0)
            if tokens:
                self._waiting[id] = tokens
