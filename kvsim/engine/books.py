"""What an engine tells its recorder: the ledger over time, and the gaps between tokens."""

from kvsim.engine.pauses import Pauses
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.ledger import Course, Usage, file_free, filed
from kvsim.memory.parts import NO_PARTS
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence


class Books:
    """Keeps the books of one engine. `open` before time passes, `close` after it has."""

    def __init__(self, scheduler: Scheduler, recorder: Recorder) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._usage = Usage()
        self._saved_bytes = 0
        self._parts = NO_PARTS
        self._num_waiting = 0
        self._pauses = Pauses()
        self._head: Sequence | None = None  # of the queue

    def planned(self, plan: Plan, token_ps: int) -> None:
        """Whose tokens stop coming with this plan, the last at `token_ps`, and whose come again."""
        self._pauses.planned(plan, token_ps)

    def returned(self, plan: Plan, now_ps: int) -> None:
        """The tokens of a plan that computes prompts came at now_ps: first ones among them."""
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq.first_token_ps < 0:
                chunk.seq.first_token_ps = now_ps

    def open(self) -> None:
        """Time is about to pass: this is how the ledger and the queue stand. Who arrives while it
        does waits from then on, which the recorder is told by itself (`queue`).
        """
        self._usage = self._scheduler.usage()
        self._num_waiting = len(self._scheduler.waiting)
        self._head = self._scheduler.waiting.head
        self._saved_bytes = self._scheduler.allocator.saved_bytes or 0
        self._parts = self._scheduler.allocator.parts

    def idled(self, start_ps: int, end_ps: int) -> None:
        """Nothing ran between the two."""
        rest = 0, self._num_waiting, 0, self._parts
        self._recorder.interval(start_ps, 0, end_ps - start_ps, 0, self._usage, None, *rest)

    def queue(self, now_ps: int) -> None:
        """The queue may have changed now."""
        self._recorder.queue(now_ps, len(self._scheduler.waiting))

    def close(self, plan: Plan, steps: int) -> None:
        """`plan` was scheduled and computed `steps` times."""
        if plan.ends_ps:
            self._close_drafted(plan, steps)
            return
        course = self._scheduler.repeat(plan, steps - 1) if steps > 1 else None
        self._book(plan, plan.start_ps, steps, plan.first_ps, plan.growth_ps, course)

    def _close_drafted(self, plan: Plan, steps: int) -> None:
        """The same where each step accepts as many drafts as it does: step by step, but nobody is
        looked at who takes no block in it.
        """
        scheduler, allocator = self._scheduler, self._scheduler.allocator
        start_ps = plan.start_ps
        for step in range(steps):
            if step:
                scheduler.return_once()
                scheduler.repeat_once(plan)
                self._usage = allocator.usage(self._head, busy=True)
                self._parts = allocator.parts
            end_ps = plan.start_ps + plan.ends_ps[step]
            self._book(plan, start_ps, 1, end_ps - start_ps, 0, None)
            start_ps = end_ps

    def close_returned(self, done: Plan, plan: Plan) -> None:
        """While `done` computed its last step, `plan` was scheduled: its slots were taken but not
        yet valid.
        """
        self._usage = _not_yet_valid(self._usage, self._ahead_bytes(plan))
        self._book(done, done.last_start_ps, 1, done.end_ps - done.last_start_ps, 0, None)

    def close_repeated(self, plan: Plan, steps: int) -> None:
        """After `done` has returned: `plan` was scheduled `steps` times in all and computed in all
        but the last, each time with the slots of the next taken but not yet valid.
        """
        if plan.ends_ps:
            self._close_repeated_drafted(plan, steps)
            return
        scheduler, now, ahead = self._scheduler, self._usage, self._ahead_bytes(plan)
        scheduler.repeat(plan, 1)
        self._saved_bytes = scheduler.allocator.saved_bytes or 0
        self._parts = scheduler.allocator.parts
        next_usage = file_free(scheduler.allocator.usage(None, busy=True), now)
        self._usage = _not_yet_valid(next_usage, ahead)
        course = filed(scheduler.repeat(plan, steps - 2), now) if steps > 2 else None
        self._book(plan, plan.start_ps, steps - 1, plan.first_ps, plan.growth_ps, course)

    def _close_repeated_drafted(self, plan: Plan, steps: int) -> None:
        """The same where each step accepts as many drafts as it does."""
        scheduler, allocator = self._scheduler, self._scheduler.allocator
        start_ps = plan.start_ps
        self._saved_bytes = allocator.saved_bytes or 0
        for step in range(steps - 1):
            scheduler.repeat_once(plan)
            usage = allocator.usage(self._head, busy=True)
            self._usage = _not_yet_valid(usage, self._ahead_bytes(plan))
            self._parts = allocator.parts
            end_ps = plan.start_ps + plan.ends_ps[step]
            self._book(plan, start_ps, 1, end_ps - start_ps, 0, None)
            scheduler.return_once()
            start_ps = end_ps

    def _ahead_bytes(self, plan: Plan) -> int:
        """Slots that a step of `plan` fills."""
        return plan.new_slots * self._scheduler.allocator.token_bytes

    def _book(
        self,
        plan: Plan,
        start_ps: int,
        steps: int,
        first_ps: int,
        growth_ps: int,
        course: Course | None,
    ) -> None:
        """`plan` computed for `steps` steps from start_ps on, after its copies."""
        recorder, running = self._recorder, len(self._scheduler.running)
        self._tokens(plan, start_ps, steps, first_ps, growth_ps)
        if plan.stalls:
            rest = self._num_waiting, self._saved_bytes, self._parts
            for stall_ps, usage in plan.stalls:
                recorder.interval(start_ps, 0, stall_ps, 0, usage, None, running, *rest)
                start_ps += stall_ps
                first_ps -= stall_ps
        recorder.interval(
            start_ps,
            steps,
            first_ps,
            growth_ps,
            self._usage,
            course,
            running,
            self._num_waiting,
            self._saved_bytes,
            self._parts,
        )
        if plan.outside:
            recorder.outside_steps += steps

    def _tokens(self, plan: Plan, start_ps: int, steps: int, first_ps: int, growth_ps: int) -> None:
        """The gaps between tokens in these steps; the first may come after a pause."""
        recorder, num = self._recorder, plan.num_decode + plan.num_verifying
        if plan.late or plan.num_late:
            recorder.gaps_until(start_ps + first_ps, plan.late.values())
            if plan.late_batch is not None:
                since_ps, alike = plan.late_batch.since_ps, plan.late_batch.num
                recorder.tokens(alike, 1, start_ps + first_ps - since_ps, 0)
            recorder.tokens(num - plan.num_late, 1, first_ps, 0)
            plan.late, plan.late_batch, plan.num_late = {}, None, 0
            steps, first_ps = steps - 1, first_ps + growth_ps
        if steps:
            recorder.tokens(num, steps, first_ps, growth_ps)


def _not_yet_valid(usage: Usage, ahead_bytes: int) -> Usage:
    """The ledger with slots of a step that has not begun counted as reserved. A slot that several
    sequences share is computed by each: no more than there are.
    """
    used, reserved, *others = usage
    ahead_bytes = min(ahead_bytes, used)
    return Usage(used - ahead_bytes, reserved + ahead_bytes, *others)
