"""What every scheduler does: keep who waits and who runs, and carry a plan through its life.

schedule()          decide one step and take its memory        (policies differ here alone)
repeatable(plan)    how many equal steps could follow
repeat(plan, k)     let them have happened
finish(plan)        its outputs have returned: sequences that are done give their memory back
"""

from abc import ABC, abstractmethod
from typing import Literal, Self

from pydantic import Field, model_validator

from kvsim.engine.batch import DecodeBatch
from kvsim.engine.plan import HostCopy, Plan, ScheduledChunk
from kvsim.engine.policies.swap import SwapSpace
from kvsim.engine.policies.waiting import FcfsQueue, WaitingQueue
from kvsim.memory.allocator import Allocator, Refusal
from kvsim.memory.ledger import Course, Usage
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import GIB
from kvsim.request import Request
from kvsim.sequence import Sequence

UNBOUNDED = 1 << 62
DEFAULT_SWAP_GIB = 4.0  # vLLM v0's


class SchedulerOptions(Options):
    """Options of one scheduler kind; its fields are the keys beside `kind` in `[scheduler]`.

    preemption_mode: a preempted sequence computes again what it had ("recompute"), or that goes to
        host memory and comes back ("swap"). swap_space_gib: of host memory; 4 unless given.
        swap_latency_us: before each copy; 0 unless given. Both belong to "swap".
    """

    preemption_mode: Literal["recompute", "swap"] = "recompute"
    swap_space_gib: float | None = Field(None, gt=0)
    swap_latency_us: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _swap_options_belong_to_swap(self) -> Self:
        for key in ("swap_space_gib", "swap_latency_us"):
            if self.preemption_mode != "swap" and getattr(self, key) is not None:
                raise ValueError(f'{key} changes nothing unless preemption_mode = "swap"')
        return self

    @property
    def depth(self) -> int:
        """Steps in flight: 2 under asynchronous scheduling."""
        return 1

    @property
    def rules(self) -> str:
        """Whose version of the block pool's rules goes with this scheduler."""
        return "vllm-0.33"

    @property
    def max_in_flight_tokens(self) -> int | None:
        """Most tokens scheduled whose step has not returned; None: prompts are computed whole."""
        return None

    def build(self, allocator: Allocator, max_model_len: int) -> "Scheduler":
        """A scheduler over this allocator, nothing running."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this

    def start(self, allocator: Allocator, max_model_len: int) -> "Scheduler":
        """The same, with its swap space; InputError if what `allocator` keeps cannot be swapped."""
        scheduler = self.build(allocator, max_model_len)
        if self.preemption_mode == "swap":
            if not allocator.swappable:
                raise InputError(
                    "layers with a window or a state are not swapped",
                    where="scheduler.preemption_mode",
                    value=self.preemption_mode,
                    remedy="recompute, or set disable_hybrid_kv_cache_manager = true",
                )
            gib = DEFAULT_SWAP_GIB if self.swap_space_gib is None else self.swap_space_gib
            scheduler.swap_space = SwapSpace(int(gib * GIB))
        return scheduler


class Scheduler(ABC):
    """Waiting and running sequences over one allocator.

    running: in order of admission. prefilling: those of them that still compute their prompt (or,
    resumed, all they had). Running sequences in neither `prefilling` nor the batch wait for their
    last output to return.
    """

    def __init__(self, allocator: Allocator, max_model_len: int) -> None:
        self.allocator = allocator
        self.max_model_len = max_model_len
        self.waiting: WaitingQueue = FcfsQueue()
        self.running: dict[Sequence, None] = {}
        self.prefilling: dict[Sequence, None] = {}
        self.batch = DecodeBatch()
        self.num_preemptions = 0
        self.recomputed_tokens = 0
        self.swap_space: SwapSpace | None = None
        self._orders = 0
        self._stepped = False  # the decoders of this step have taken their slots

    @abstractmethod
    def schedule(self) -> Plan:
        """Decide the next step, take its memory and advance its sequences."""

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """Why this scheduler could never run `request`; None if it could."""

    def add(self, seq: Sequence) -> bool:
        """A new sequence waits. Returns whether the next plan could differ for it."""
        before = self.waiting.head
        self.waiting.add(seq)
        return self.waiting.head is not before or not self.running

    @property
    def swapped_bytes(self) -> int:
        """Moved to host memory and back so far."""
        return self.swap_space.swapped_bytes if self.swap_space else 0

    # --- building blocks of a plan --------------------------------------------------------------

    def _kept_tokens(self, seq: Sequence) -> int:
        """Leading tokens of a waiting sequence that need no computing: cached or swapped out."""
        cached = self.allocator.cached_tokens(seq)
        return max(cached, self.swap_space.tokens(seq)) if self.swap_space else cached

    def _start(self, seq: Sequence, plan: Plan, cached_tokens: int, new_tokens: int) -> None:
        """An admitted sequence (the head of `waiting`, its memory taken) runs its first chunk."""
        self.waiting.pop()
        num_bytes = self.allocator.take_loaded_bytes()
        num_bytes += self.swap_space.take(seq) if self.swap_space else 0
        if num_bytes:
            plan.copies.append(HostCopy(num_bytes, self.usage()))
        seq.order = self._orders = self._orders + 1
        self.running[seq] = None
        resumed = seq.num_preemptions > 0
        plan.admitted.append((seq, cached_tokens, resumed))
        if resumed:
            self.recomputed_tokens += max(0, seq.num_computed - cached_tokens)
        else:
            seq.hit_tokens = cached_tokens
        seq.num_computed = cached_tokens
        self.prefilling[seq] = None
        self._compute(seq, plan, new_tokens)

    def _compute(self, seq: Sequence, plan: Plan, new_tokens: int) -> None:
        """A sequence whose memory is taken computes `new_tokens` in this plan."""
        prior = seq.num_computed
        seq.num_computed = prior + new_tokens
        samples = seq.num_computed == seq.num_tokens
        is_decode = samples and new_tokens == 1 and seq.num_outputs > 0
        seq.num_outputs += samples
        plan.chunks.append(ScheduledChunk(seq, new_tokens, prior, samples, is_decode))

    def _extend(self, seq: Sequence, plan: Plan, num_tokens: int) -> bool:
        """Memory for `num_tokens` slots of a running sequence, its copy booked in the plan."""
        if not self.allocator.extend(seq, num_tokens):
            return False
        copy_ps = self.allocator.copy_pending_ps()
        if copy_ps:
            plan.stalls.append((copy_ps, self.usage()))
            self.allocator.settle()
        return True

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        """Take everything from a running sequence; it waits at the front and recomputes later.

        `num_computed` keeps what it had computed until it resumes.
        """
        del self.running[victim]
        if victim.decoding:
            self.batch.leave(victim)
            self.allocator.leave(victim)
            if self._stepped:
                victim.num_computed -= 1
                victim.num_outputs -= 1
        elif victim in self.prefilling:
            del self.prefilling[victim]
        for index, chunk in enumerate(plan.chunks):
            if chunk.seq is victim:
                victim.num_outputs -= chunk.samples
                victim.num_computed -= chunk.new_tokens
                del plan.chunks[index]
                break
        if self.swap_space:
            self._swap_out(victim, plan, self.swap_space)
        self.allocator.release(victim)
        victim.num_preemptions += 1
        self.num_preemptions += 1
        plan.preempted.append(victim)
        self.waiting.put_back(victim)

    def _swap_out(self, victim: Sequence, plan: Plan, space: SwapSpace) -> None:
        """What `victim` computed goes to host memory, if there is room."""
        num_bytes = self.allocator.sequence_bytes(victim.num_computed)
        if space.put(victim, victim.num_computed, num_bytes):
            plan.copies.append(HostCopy(num_bytes, self.usage()))

    def _step_decoders(self, plan: Plan, held: list[Sequence]) -> None:
        """All members of the batch but `held` take one slot in this plan."""
        for seq in held:
            self.batch.leave(seq)
            self.allocator.leave(seq)
        if self.batch.num:
            self.allocator.advance(1)
            self.batch.advance(1)
        self._stepped = True
        plan.held = held

    def _settle(self, plan: Plan) -> Plan:
        """Close the plan: count its decoders, and let whoever can decode join for the next step."""
        if self._stepped:
            self._stepped = False
            plan.num_decode = self.batch.num
            plan.context_tokens = self.batch.context_tokens
            plan.longest_context_tokens = self.batch.longest_context_tokens()
        for seq in plan.held:
            if seq in self.running and not seq.decoding:
                self._join(seq, seq.num_computed)
        for chunk in plan.chunks:
            if chunk.samples:
                seq = chunk.seq
                del self.prefilling[seq]
                if seq.num_outputs < seq.output_tokens:
                    self._join(seq, seq.num_computed)
                else:
                    plan.finishing.append(seq)
        self._complete(plan)
        return plan

    def _join(self, seq: Sequence, num_tokens: int) -> None:
        self.batch.join(seq, num_tokens)
        self.allocator.join(seq, num_tokens)

    def _complete(self, plan: Plan) -> None:
        """Decoders that have sampled their last token stop decoding; the plan will finish them."""
        for seq in self.batch.complete():
            self.batch.leave(seq)
            self.allocator.leave(seq)
            plan.finishing.append(seq)

    # --- the life of a plan ---------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        """How many more steps equal to `plan` may follow it, at most `limit`, if nothing arrives.

        A step repeats while only the batch decodes, nobody is done, memory lasts, and the head of
        the queue, which could not start now, still cannot.
        """
        if plan.chunks or plan.held or plan.preempted or plan.finishing or plan.stalls:
            return 0
        limit = min(limit, self.batch.steps_to_leave())
        limit = self.allocator.steps_that_fit(limit)
        head = self.waiting.head
        if head is not None and limit:
            if self.allocator.may_gain(head):
                return 0
            limit = self.allocator.spare_steps(head, limit, busy=bool(self.running))
        return limit

    def repeat(self, plan: Plan, steps: int) -> Course:
        """`steps` more steps like `plan` have been scheduled; returns how the ledger moved."""
        course = self.allocator.advance(steps)
        self.batch.advance(steps)
        plan.steps += steps
        self._complete(plan)
        return course

    def finish(self, plan: Plan) -> list[Sequence]:
        """The outputs of the plan's last step returned: who is done leaves, in running order."""
        plan.finishing.sort(key=lambda seq: seq.order)
        for seq in plan.finishing:
            seq.finished = True
            if self.swap_space:
                self.swap_space.drop(seq)
            if seq in self.running:
                del self.running[seq]
                self.allocator.release(seq)
            else:
                self.waiting.remove(seq)  # preempted while its last token was on its way
        return plan.finishing

    def usage(self) -> Usage:
        """The ledger now."""
        return self.allocator.usage(self.waiting.head, busy=bool(self.running))
