"""The front end of an engine: queues the sequences of requests, or refuses requests."""

from collections.abc import Callable, Iterator

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Refusal
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence


class Intake:
    """Receives requests and reports finished ones.

    on_left: called with each request that has finished or was refused. refuse: refuse requests that
    can never run; if False they stay in the queue for ever, as in a scheduler without a front end.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        recorder: Recorder,
        on_left: Callable[[Request], None],
        *,
        refuse: bool,
    ) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._on_left = on_left
        self._refuse = refuse
        self._private_ids = 0
        self._open: dict[str, int] = {}  # unfinished sequences of each request

    def take(self, request: Request, now_ps: int, came_ps: int | None = None) -> bool:
        """Queue or refuse `request`, which arrives now; returns whether the next plan could differ
        because of it.

        came_ps: time at which it reached the deployment, if earlier.
        """
        came_ps = now_ps if came_ps is None else came_ps
        request = self._cut(request)
        refusal = self._refusal(request) if self._refuse else None
        if refusal is not None:
            self.turn_away(request, now_ps, refusal)
            return False
        self._recorder.arrived(came_ps)
        self._open[request.id] = request.n
        heads = [self._scheduler.add(seq) for seq in self._samples(request, came_ps)]
        return any(heads)

    def refusal(self, request: Request) -> Refusal | None:
        """Why `request` is refused on arrival; None if it is not."""
        return self._refusal(self._cut(request)) if self._refuse else None

    def turn_away(self, request: Request, now_ps: int, refusal: Refusal | str) -> None:
        """Record that `request` arrives and is refused at once."""
        self._recorder.arrived(now_ps)
        self._recorder.refused(self._cut(request), now_ps, str(refusal))
        self._on_left(request)

    def _cut(self, request: Request) -> Request:
        """Shorten the output of `request` to the scheduler's limit."""
        limit = self._scheduler.output_limit(request)
        return request._replace(output_tokens=limit) if request.output_tokens > limit else request

    @property
    def unfinished(self) -> list[str]:
        """The ids of unfinished requests."""
        return list(self._open)

    def failed(self, plan: Plan, now_ps: int) -> None:
        """Remove the sequences of `plan` that ended with an error, without their remaining
        tokens.
        """
        for seq, reason in plan.failed:
            self.ended(seq, now_ps, reason)

    def ended(self, seq: Sequence, now_ps: int, reason: str) -> None:
        """Remove `seq`, which ended with the error `reason`."""
        self._recorder.failed(seq, now_ps, reason)
        self._leave(seq)

    def left(self, seq: Sequence, now_ps: int) -> None:
        """Remove `seq`, which has all its tokens; its request leaves with the last of its
        sequences.
        """
        self._recorder.left(seq, now_ps)
        self._leave(seq)

    def _leave(self, seq: Sequence) -> None:
        request = seq.request
        self._open[request.id] -= 1
        if not self._open[request.id]:
            del self._open[request.id]
            self._on_left(request)

    def _samples(self, request: Request, now_ps: int) -> Iterator[Sequence]:
        """The n sequences of a request; they share its prompt."""
        if request.n == 1:
            yield Sequence(request, now_ps)
            return
        if request.prompt_runs is None:  # ids below zero are unique
            self._private_ids -= request.prompt_tokens
            runs = ((self._private_ids, request.prompt_tokens),)
            request = request._replace(prompt_runs=runs)
        for sample in range(request.n):
            seq = Sequence(request, now_ps, f"{sample}_{request.id}")
            if sample:
                seq.output_start = None
            yield seq

    def _refusal(self, request: Request) -> Refusal | None:
        """Why `request` could never finish; None if it could."""
        scheduler = self._scheduler
        return (
            self._too_long(request)
            or scheduler.refusal(request)
            or scheduler.allocator.refusal(request)
        )

    def _too_long(self, request: Request) -> Refusal | None:
        longest = self._scheduler.max_model_len - min(1, request.output_tokens)
        if request.prompt_tokens <= longest:
            return None
        return Refusal(
            "its prompt leaves no room for output in max_model_len",
            request.prompt_tokens,
            longest,
            "tokens",
            "clip the prompts or raise max_model_len",
        )
