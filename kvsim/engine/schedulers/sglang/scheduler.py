"""SGLang's scheduler (0.5.23): prompts first; decoding requests pause meanwhile, or join the batch.

One pass ends the batch before it, and admits the prompts that its budget allows (prompts.py). A
prompt cut into chunks continues first in the next pass. A pass decodes only if it admitted no
prompt (running_batch.py). Memory for later outputs of running requests is only counted, not
allocated. If the count was too low, some requests are retracted.

Outputs of the step in flight do not count yet: a request that ends with it still holds its place.

Transfers between prefill and decode engines and memory after the device's (HiCache) are parts that
the scheduler holds (parts.py). Each has a form that does nothing.
"""

from functools import partial
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import UNBOUNDED, Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.budget import never_starts
from kvsim.engine.schedulers.sglang.limits import Limits
from kvsim.engine.schedulers.sglang.outputs import InFlight, NewTokenRatio, Outputs
from kvsim.engine.schedulers.sglang.parts import NO_HICACHE, EngineSide, HicachePart
from kvsim.engine.schedulers.sglang.prompts import PrefillBatch, PromptKnobs
from kvsim.engine.schedulers.sglang.queue import SglangQueue
from kvsim.engine.schedulers.sglang.ring import Ring
from kvsim.engine.schedulers.sglang.running_batch import RunningBatch
from kvsim.memory.allocator import Allocator, Refusal
from kvsim.memory.ledger import Course, Usage
from kvsim.memory.prefix_room import prefix_room
from kvsim.request import Request
from kvsim.sequence import Sequence


class SglangParts(NamedTuple):
    """The parts of an SGLang scheduler.

    policies: queue of all waiting requests, victim and preemption. queue: waiting requests with
    prompts to compute on this engine. max_running_requests: the option, None if not given.
    conservativeness: see `NewTokenRatio`. stages: number of pipeline stages. most_in_batch: limit
    on the requests of one micro-batch; None: an equal share of the limit on running requests.
    """

    allocator: Allocator
    max_model_len: int
    policies: Policies
    queue: SglangQueue
    knobs: PromptKnobs
    max_running_requests: int | None
    conservativeness: float
    side: EngineSide
    hicache: HicachePart = NO_HICACHE
    stages: int = 1
    most_in_batch: int | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class SglangScheduler(Scheduler):
    """Schedules as SGLang does.

    running: requests with KV memory, decoding and prefilling. decoding: SGLang's running batch;
    with several micro-batches, the one of the last pass. request_limits: limits on requests.
    """

    def __init__(self, parts: SglangParts) -> None:
        super().__init__(parts.allocator, parts.max_model_len, parts.policies)
        allocator, queue = parts.allocator, parts.queue
        self.room = room = prefix_room(allocator)
        self.side, self.hicache = parts.side, parts.hicache
        self.ratio = NewTokenRatio(parts.conservativeness)
        in_flight = self.in_flight = InFlight(elsewhere=parts.stages > 1)
        outputs = self.outputs = Outputs(self.batch, in_flight)
        batch_of = partial(RunningBatch, self, room, self.ratio, outputs, self.side, self.hicache)
        self.ring = Ring(self, parts.stages, batch_of)
        self.decoding = self.ring.places[0]
        self.request_limits = Limits(
            room.available_tokens(),
            parts.max_model_len,
            allocator.page_tokens,
            allocator.max_sequences,
        )
        self.most_running = self.request_limits.max_running(parts.max_running_requests)
        most = self.most_running
        share = parts.most_in_batch or max(1, most // parts.stages)
        self.prompts = PrefillBatch(
            self, queue, room, self.decoding, self.hicache, parts.knobs, most, share
        )
        self._queue, self._inbox = queue, queue.inbox
        self._chunk_tokens = parts.knobs.chunked_prefill_size or UNBOUNDED

    @property
    def decoders(self) -> dict[Sequence, int]:
        """SGLang's running batch, in its order."""
        return self.decoding.members

    @property
    def expects_more(self) -> bool:
        return self.side.busy or self.hicache.busy

    @property
    def swapped_bytes(self) -> int:
        return self.hicache.copied_bytes

    def members(self, plan: Plan) -> list[Sequence]:
        """Requests of the batch just planned, in batch order."""
        return self.decoding.prompts if _has_prompts(plan) else list(self.decoding.members)

    # --- requests ------------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        found = self.request_limits.refusal(request)
        return self.side.refusal(request) if found is None else found

    def give_up(self, head: Sequence) -> Refusal | None:
        rest = self.outputs.wishes[head] - head.num_outputs
        page = self.allocator.page_tokens
        refusal = never_starts(self.room, head, rest, self._chunk_tokens, page)
        if refusal is not None:
            self.leave(head)
            self.outputs.remove(head)
        return refusal

    def output_limit(self, request: Request) -> int:
        most = self.request_limits.max_new_tokens(request)
        return max(1, min(super().output_limit(request), most))

    def add(self, seq: Sequence) -> bool:
        self.outputs.add(seq, self.request_limits.max_new_tokens(seq.request))
        if self.side.takes(seq):
            return True
        looked_up = self.hicache.arrived(seq)
        if not self._inbox.always_open:
            self._inbox.send(seq)
            return True  # the next receive may precede the end of the current run
        super().add(seq)
        return looked_up or self.prompts.open or self._queue.policy.ages or not self.running

    # --- a pass --------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        plan, in_flight = Plan(), self.in_flight
        self._queue.begin_pass()
        self.decoding = self.prompts.running = self.ring.turn()
        self.side.begin(plan)
        self.hicache.begin(self._queue, self.waiting.head)
        if not self._inbox.always_open:
            prompts, idle = bool(self.decoding.prompts), not self.running
            for seq in self._inbox.receive(prompts=prompts, idle=idle):
                super().add(seq)
        self._pass(plan)
        while self.side.passes_again(plan):
            self._pass(plan)
        if not plan.empty:
            in_flight.scheduled(plan)
            self.ring.launched(plan)
            self.room.step_scheduled(self.prompts.place)
        elif not (self.waiting or self.running or in_flight or self.expects_more):
            self.ratio.idle()
        elif not (self.decoding.members or in_flight or self.expects_more):
            self.prompts.check_goes_on()
        self.hicache.end(plan)
        self.side.end(plan)
        return plan

    def _pass(self, plan: Plan) -> None:
        """End the last batch, and compute prompts, or else decode."""
        self.in_flight.settle()
        decoding, prompts = self.decoding, self.prompts
        decoding.enter(self.side.joining(plan, prompts.settle()))
        decoding.drop_finished()
        if prompts.prefill(plan):
            self._queue.prefilled_tokens += decoding.prompt_tokens
        else:
            decoding.decode(plan)
            self._queue.prefilled_tokens += decoding.first_tokens * self.stepped
        self._close(plan)
        self.ring.decided(plan)

    def resume(self, seq: Sequence) -> None:
        """Run `seq` from this pass on, with a prompt computed on another engine and memory already
        allocated.
        """
        seq.order = self._orders = self._orders + 1
        self.running[seq] = None

    # --- the life of a plan --------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        if plan.chunks or plan.num_paused or plan.preempted or plan.finishing or plan.stalls:
            return 0
        waits = not self.ring.alone or (self._queue.num_seen and self.prompts.open)
        if waits or plan.rejoined or self.prompts.chunked is not None:
            return 0
        if self._is_short(self.waiting.head) and not self.allocator.usage(None, busy=True).idle:
            return 0  # evictions are not recorded yet
        limit = self._inbox.steps_to_receive(min(limit, self.batch.steps_to_leave()))
        limit = self.allocator.steps_that_fit(self.side.quiet_steps(limit))
        return self.hicache.quiet_steps(limit)

    def returns_quietly(self, plan: Plan) -> bool:
        # Waiting requests are not tried: see `repeatable`.
        return not plan.finishing and self.hicache.returns_quietly(plan)

    def repeat(self, plan: Plan, steps: int) -> Course:
        self.ratio.decay(steps)
        self._queue.prefilled_tokens += steps * self.decoding.first_tokens
        if not self._inbox.always_open:
            self._inbox.decoded(steps)
        return super().repeat(plan, steps)

    def _complete(self, plan: Plan) -> None:
        super()._complete(plan)
        if len(plan.finishing) > 1:
            places = {seq: place for place, seq in enumerate(self.members(plan))}
            plan.finishing.sort(key=places.__getitem__)

    def finish(self, plan: Plan) -> list[Sequence]:
        self.in_flight.returned(plan)
        self.room.step_returned()
        finishing = dict.fromkeys(plan.finishing)
        done: list[Sequence] = []
        for chunk in plan.chunks:
            if chunk.seq in finishing and chunk.samples:
                del finishing[chunk.seq]
                done.append(chunk.seq)
                self.leave(chunk.seq)
                continue
            if chunk.samples:
                self.allocator.checkpoint(chunk.seq, chunk.prior_tokens + chunk.new_tokens)
            self.side.computed(chunk)
        for seq in finishing:
            done.append(seq)
            self.leave(seq)
        self.ring.returned(plan, done)
        return done

    def leave(self, seq: Sequence) -> None:
        """Remove `seq`, with all outputs processed."""
        super().leave(seq)
        self._queue.left(seq)
        self.hicache.left(seq)

    # --- what others ask -----------------------------------------------------------------------

    def _is_short(self, head: Sequence | None) -> bool:
        """Whether `head` was refused for lack of memory when last tried."""
        return head is not None and head is self.prompts.short_head

    def usage_for(self, head: Sequence | None) -> Usage:
        """The memory ledger now. All free bytes count as too few for `head` if the budget's counts
        refuse it.
        """
        usage = self.allocator.usage(None, busy=bool(self.running))
        if self._is_short(head) or self.side.short_head is not None:
            usage = usage._replace(short=usage.short + usage.idle, idle=0)
        return usage


def _has_prompts(plan: Plan) -> bool:
    """Whether `plan` is a prefill batch."""
    return any(not chunk.is_decode for chunk in plan.chunks)
