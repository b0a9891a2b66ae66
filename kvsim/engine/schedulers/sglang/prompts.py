"""The prompts of an SGLang engine: a pass admits waiting ones, and continues the chunked prompt
first.

The first request that does not fit ends the pass; no later one overtakes it. A request is pinned
before it is tried, so that its cached prefix counts as used memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from kvsim.engine.plan import Cached, Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.budget import (
    CLIP_MAX_NEW_TOKENS,
    Budget,
    PassLimits,
    Stop,
)
from kvsim.engine.schedulers.sglang.ignore_eos import Ends, Span, span
from kvsim.engine.schedulers.sglang.parts import HicachePart
from kvsim.engine.schedulers.sglang.priorities import leaving
from kvsim.engine.schedulers.sglang.queue import SglangQueue
from kvsim.engine.schedulers.sglang.running_batch import RunningBatch
from kvsim.memory.prefix_room import PrefixRoom
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.sequence import Sequence


class Newcomer(NamedTuple):
    """An admitted, pinned request. cached: tokens hit in the prefix cache. new_tokens: tokens
    computed in this pass.
    """

    seq: Sequence
    cached: int
    new_tokens: int


class PrefillAdmission:
    """The admissions of one pass.

    wishes: max_new_tokens of each request. ratio: the new-token ratio. running: gives the spans of
    running requests. hicache: loads host hits of admitted requests. makes_way: retracts running
    requests for a more urgent one, and returns whether it did. cached: the pool has a prefix cache.

    taken: admitted requests. stop: the exhausted budget that ended the pass before the end of the
    queue; None: no budget did. no_place: the limit on running requests is reached. cut_twice:
    SGLang would cut a second prompt into chunks, which it cannot continue. skipped: a request was
    skipped.
    """

    def __init__(
        self,
        room: PrefixRoom,
        budget: Budget,
        wishes: Mapping[Sequence, int],
        ratio: float,
        running: Callable[[], Iterable[Span]],
        hicache: HicachePart,
        makes_way: Callable[[Sequence], bool],
        *,
        cached: bool,
    ) -> None:
        self._room = room
        self._budget = budget
        self._wishes = wishes
        self._ratio = ratio
        self.running = running
        self._hicache = hicache
        self._makes_way = makes_way
        self._cached = cached
        self._ends: Ends | None = None
        self._cut = False  # whether a newcomer computes a part of its prompt
        self.taken: list[Newcomer] = []
        self.stop: Stop | None = None
        self.no_place = False
        self.cut_twice = False
        self.skipped = False

    def choose(
        self, queue: SglangQueue, places: int, most: int, *, alone: bool, cuts: bool
    ) -> None:
        """Admit requests from the front of `queue`. places: number of requests that can be added to
        the running ones. most: limit on the prompts of one pass.

        alone: no chunked prompt is in progress. cuts: a prompt may be cut into chunks.
        """
        room, budget = self._room, self._budget
        for seq in list(queue):
            if budget.stop() is Stop.OTHER:
                break
            self.no_place = self.no_place or len(self.taken) >= places
            if self.no_place and not self._makes_way(seq):
                break
            if self._hicache.skips(seq):
                self.skipped = True
                continue
            cached = room.pin(seq)
            queue.entries[seq].tried(seq.num_tokens, cached)
            if len(self.taken) >= most:
                room.unpin(seq)
                break
            if seq.request.ignore_eos and not self._cached:
                new_tokens, self.stop = self._weigh_ends(seq)
            else:
                first = alone and not self.taken
                new_tokens, self.stop = self._weigh(seq, cached, first=first, cuts=cuts)
            if not new_tokens:
                room.unpin(seq)
                break
            self.taken.append(Newcomer(seq, cached, new_tokens))
            if self.stop is not None:
                break

    def weight(self, seq: Sequence) -> int:
        """Output tokens that the budget counts for a new request."""
        return min(self._wishes[seq], CLIP_MAX_NEW_TOKENS)

    def _weigh(
        self, seq: Sequence, cached: int, *, first: bool, cuts: bool
    ) -> tuple[int, Stop | None]:
        """Try to admit `seq`; returns (tokens to compute now, 0 if refused; reason why no further
        request is admitted, or None).

        A prefix in host memory needs device memory, but no computation. If it cannot be loaded, the
        request is tried again without it. first: the pass has admitted no request yet. cuts: the
        prompt may be cut into chunks.
        """
        budget, loads = self._budget, self._hicache.host_hit(seq)
        while True:
            new_tokens = seq.num_tokens - cached
            most = budget.most_of_chunk(new_tokens, self._rest(seq))
            if most is None:
                return 0, Stop.MEMORY
            new_tokens -= loads
            if not budget.chunked and not first and budget.paged(new_tokens) >= budget.input:
                return 0, Stop.OTHER
            now = budget.first_chunk(cached + loads, new_tokens, most)
            if now < new_tokens and not cuts:
                return 0, Stop.OTHER
            if not loads or now <= 0 or self._hicache.load_back(seq):
                return self._charge(seq, now, new_tokens)
            loads = 0

    def _weigh_ends(self, seq: Sequence) -> tuple[int, Stop | None]:
        """Try a request with ignore_eos in a pool without prefix cache."""
        budget = self._budget
        need = budget.paged(seq.num_tokens) + budget.page
        if need > min(budget.left_current, budget.left_total):
            return 0, Stop.MEMORY
        if self._room.windows is not None:  # ends are not walked through there
            if not budget.holds_at_once(seq.num_tokens, self._rest(seq)):
                return 0, Stop.MEMORY
        elif not self._ends_fit(seq, budget.left_current - need):
            return 0, Stop.MEMORY
        cut = budget.chunked and seq.num_tokens > budget.chunk
        return self._charge(seq, budget.chunk if cut else seq.num_tokens, seq.num_tokens)

    def _rest(self, seq: Sequence) -> int:
        """Output tokens that `seq` may still generate, as the budget counts them."""
        return min(max(self._wishes[seq] - seq.num_outputs, 0), CLIP_MAX_NEW_TOKENS)

    def _ends_fit(self, seq: Sequence, left: int) -> bool:
        """Whether `left` tokens suffice until running and admitted requests and `seq` have
        ended.
        """
        if self._ends is None:
            taken = (self._span(newcomer.seq) for newcomer in self.taken)
            self._ends = Ends(self._span(seq), (*self.running(), *taken))
        else:
            self._ends.add(self._span(seq))
        return self._ends.fit(left)

    def _charge(self, seq: Sequence, now: int, new_tokens: int) -> tuple[int, Stop | None]:
        """Charge the budget for `now` of new_tokens tokens of `seq`; at most one prompt of a pass
        is cut into chunks.

        Returns as `_weigh`.
        """
        cut = now < new_tokens
        if now <= 0:
            return 0, Stop.OTHER
        if cut and self._cut:  # SGLang cuts the second too, takes the first for whole, and goes on
            self.cut_twice = True  # from what of it was computed: nothing to be reproduced
            return 0, Stop.OTHER
        self._cut = cut
        self._budget.charge(now, 0 if cut else self.weight(seq))
        return now, self._budget.stop()

    def _span(self, seq: Sequence) -> Span:
        """The span of a waiting `seq`: output tokens to come, and tokens it frees at its end."""
        return span(seq, self._wishes[seq], seq.num_outputs, self._ratio)


class PromptKnobs(NamedTuple):
    """Limits on the prompts of a step.

    max_prefill_tokens: most prompt tokens. prefill_max_requests: most prompts.
    chunked_prefill_size: most tokens of a chunk; None: prompts are not cut. mixed: decoding
    requests run in the same step.
    """

    max_prefill_tokens: int
    prefill_max_requests: int
    chunked_prefill_size: int | None
    mixed: bool


class PrefillBatch:
    """The prefill batches of an engine, one in each pass.

    running: the running batch of this pass. chunked: the request with a prompt in progress.
    short_head: head of the queue that lacked memory when last tried. most_running: limit on
    requests with memory; most_in_batch: limit on those of one running batch. displaced: requests
    that were retracted for more urgent ones in the last pass.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        queue: SglangQueue,
        room: PrefixRoom,
        running: RunningBatch,
        hicache: HicachePart,
        knobs: PromptKnobs,
        most_running: int,
        most_in_batch: int,
    ) -> None:
        self._scheduler, self._queue, self._room = scheduler, queue, room
        self.running, self._hicache, self._knobs = running, hicache, knobs
        self.most_running, self._most_in_batch = most_running, most_in_batch
        self._preempts = queue.priorities.preempts
        self.displaced: list[Sequence] = []
        self.chunked: Sequence | None = None
        self.short_head: Sequence | None = None
        self._waits = False  # the chunked prompt computed nothing in the last pass

    def settle(self) -> list[Sequence]:
        """End the last prefill batch: cache the computed tokens; returns its unfinished requests
        without the chunked one.
        """
        running, chunked = self.running, self.chunked
        last = running.prompts
        if chunked is not None and not self._waits:
            self._scheduler.allocator.checkpoint(chunked, chunked.num_computed)
        # Of several micro-batches the last one may hold a chunk of a prompt that went on elsewhere.
        cut = (chunked, running.chunked)
        rest = [seq for seq in last if seq not in cut and not seq.finished]
        if len(rest) < len(last):
            running.full = False
        running.prompts, running.chunked = [], None
        return rest

    def place(self, seq: Sequence) -> int:
        """Index that orders a decoding sequence within its batch."""
        place = self.running.members.get(seq)
        return self.running.prompts.index(seq) if place is None else place

    @property
    def open(self) -> bool:
        """Whether the next pass tries waiting requests even if none arrives and none finishes."""
        return self._preempts or self._room.windows is not None or not self.running.full

    def prefill(self, plan: Plan) -> bool:
        """Continue the chunked prompt and admit new prompts; returns whether prompts alone are
        computed in this pass.
        """
        running, queue, knobs = self.running, self._queue, self._knobs
        self.displaced = []
        preempts = self._preempts
        if not running.members or self._room.windows is not None or preempts:
            running.full = False
        chunked = self.chunked
        self._waits = chunked is not None
        if chunked is None and (running.full or not queue.num_seen):
            return False
        free_rows = self.most_running - len(self._scheduler.running)
        places = self._most_in_batch - len(running.members)
        if chunked is None and min(places, free_rows) <= 0 and not preempts:
            running.full = True
            return False
        cached = self._scheduler.allocator.keeps_prefixes
        ratio, wishes = running.ratio.value, running.outputs.wishes
        if queue.num_seen:
            queue.arrange(self._room, wishes, running.members, cached=cached)
        budget = self._budget()
        admission = PrefillAdmission(
            self._room,
            budget,
            wishes,
            ratio,
            self._spans,
            self._hicache,
            lambda seq: self._make_way(seq, budget, plan),
            cached=cached,
        )
        more, goes_on_later = 0, chunked is not None
        if chunked is not None:
            rest = chunked.num_tokens - chunked.num_computed
            more = budget.next_chunk(rest, queue.shared_chunk(rest, budget.chunk, budget.page))
            goes_on_later = more < rest
            if more:
                budget.charge(more, 0 if goes_on_later else admission.weight(chunked))
        goes_on = int(more > 0)
        places = min(places, free_rows + goes_on) - goes_on
        most = knobs.prefill_max_requests - goes_on
        cuts = not (goes_on_later and queue.policy.shares_chunks)
        admission.choose(queue, places, most, alone=not goes_on, cuts=cuts)
        taken = admission.taken
        self._scheduler.engine_faults += admission.cut_twice
        short = admission.stop is Stop.MEMORY
        if short:
            running.full = bool(taken or more or running.members)
        elif admission.no_place:
            running.full = True
        spent = False
        if more or taken:
            self._hicache.submit_loads()
            if admission.skipped:
                queue.bring_forward(newcomer.seq for newcomer in taken)
            spent = self._compute(plan, more, taken)
        self.short_head = self._scheduler.waiting.head if short else None
        return spent

    def _make_way(self, seq: Sequence, budget: Budget, plan: Plan) -> bool:
        """Retract running requests so that the more urgent `seq` can start; returns whether any was
        retracted.
        """
        running, priorities, entries = self.running, self._queue.priorities, self._queue.entries
        if not self._preempts:
            return False
        wishes, entry = running.outputs.wishes, entries[seq]
        rest = entry.tried_tokens - entry.tried_cached + min(wishes[seq], CLIP_MAX_NEW_TOKENS)
        lack = rest - budget.left_total
        ratio, held_back = running.ratio.value, running.outputs.held_back
        least_urgent = leaving(
            priorities,
            seq,
            running.members,
            entries,
            lack,
            lambda other: held_back((other,), ratio),
        )
        chosen = set(least_urgent)
        for other in [each for each in running.members if each in chosen]:
            budget.give_back(held_back((other,), ratio))
            running.displace(other, plan)
            self.displaced.append(other)
        return bool(least_urgent)

    def _budget(self) -> Budget:
        """The budget of this pass."""
        running, knobs = self.running, self._knobs
        ratio, outputs = running.ratio.value, running.outputs
        limits = PassLimits(
            self._scheduler.allocator.page_tokens,
            knobs.max_prefill_tokens,
            knobs.chunked_prefill_size,
            lambda: outputs.held_back(running.members, ratio),
            outputs.most_held_back(len(running.members), ratio),
            len(running.members) if knobs.mixed else 0,
        )
        return Budget(self._room.available_tokens, limits, self._room.windows)

    def _spans(self) -> Iterator[Span]:
        """Spans of all requests that hold memory: output tokens to come, and tokens freed at the
        end.
        """
        yield from self.running.spans()
        seq, ratio = self.chunked, self.running.ratio.value
        if seq is not None:
            yield span(seq, self.running.outputs.wishes[seq], seq.num_outputs, ratio)

    def _compute(self, plan: Plan, more: int, taken: list[Newcomer]) -> bool:
        """Compute `more` tokens of the chunked prompt, and start the admitted requests; returns
        whether no request decodes in this pass.
        """
        retracted = len(plan.preempted)
        scheduler, room, running = self._scheduler, self._room, self.running
        allocator, chunked = scheduler.allocator, self.chunked if more else None
        waits = None if more else self.chunked
        self._waits = waits is not None
        page = allocator.page_tokens
        room.begin_prefill(chunked, [seq for seq, _, _ in taken])
        pages = (len(taken) + (chunked is not None)) * page if page > 1 else 0
        room.make_room(more + sum(new for _, _, new in taken) + pages)
        if chunked is not None:
            awaited = False
            while not scheduler.extend(chunked, plan, chunked.num_computed + more):
                if running.members:  # the engine would end in an error
                    running.retract(running.outputs.by_retraction(running.members)[-1], plan)
                elif not awaited:  # states and windows of its chunk in flight go when it returns
                    allocator.await_steps(chunked)
                    awaited = True
                else:
                    raise InvariantError(f"{chunked} finds no room though nobody else holds any")
            scheduler.compute(chunked, plan, more)
        for index, (seq, weighed, new_tokens) in enumerate(taken):
            cached = allocator.cached_tokens(seq)
            whole = new_tokens + cached >= seq.num_tokens
            new = seq.num_tokens - cached if whole else new_tokens
            # Where nothing can be pinned, those before it may have taken what it would have hit:
            # it is weighed anew, as only one prompt of a pass may be cut.
            if cached < weighed or not scheduler.admit_first(
                plan, Cached(cached, False), new, cached + new
            ):
                for other, _, _ in taken[index:]:
                    room.unpin(other)
                break
        self.chunked = waits
        for chunk in plan.chunks:
            chunk.is_decode = False
            if not chunk.samples:
                scheduler.engine_faults += waits is not None
                self.chunked = chunk.seq
        spent = bool(plan.chunks) or len(plan.preempted) > retracted
        if spent:  # else no request was admitted, and the others go on
            self._batch_up(plan)
        return spent

    def _batch_up(self, plan: Plan) -> None:
        """Make the prompts of `plan` a batch. Decoding requests join it if `mixed`, else they
        pause.
        """
        running = self.running
        prompts = [chunk.seq for chunk in plan.chunks]
        running.prompt_tokens = sum(chunk.new_tokens for chunk in plan.chunks)
        running.chunked = self.chunked
        ride = bool(self._knobs.mixed and running.members)
        if ride:
            running.drop_ending()
            ride = running.make_room(plan, rides=True)
        if ride:
            running.prompts = [*prompts, *running.members]
            running.prompt_tokens += len(running.members)
            running.members = {}
            self._scheduler.step_decoders(plan, [])
            return
        running.prompts = prompts
        plan.num_paused = self._scheduler.batch.num

    def check_goes_on(self) -> None:
        """Raise InputError if the chunked prompt waits for sliding windows that no other request
        will free.

        Called in a pass that started nothing, with nothing in flight. Other requests cannot start
        either: each needs a page of windows and more (schedule_policy.py, `add_one_req`), and
        SGLang ends none of them.
        """
        windows, page = self._room.windows, self._scheduler.allocator.page_tokens
        seq = self.chunked
        if seq is None or windows is None or windows.available() > page:
            return
        raise InputError(
            f"SGLang would wait for ever, and serve no other: {seq.num_computed:,} of "
            f"{seq.num_tokens:,} prompt tokens of request {seq.id} are computed, and its next "
            "chunk needs more than a page of sliding windows",
            where="allocator.swa_full_tokens_ratio",
            value=f"{windows.available():,} of {windows.pool:,} slots free",
            limit=f"more than {page:,}",
            remedy="raise it, or give the pool more memory",
        )
