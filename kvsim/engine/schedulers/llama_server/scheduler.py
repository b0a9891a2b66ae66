"""llama-server as a scheduler of the engine: each part of its batches that finds cells is a step.

The server decides (server.py) and places tokens in cells. The requests in its slots are the
engine's sequences. Samples of one request (`n`) are separate requests.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import HostCopy, Plan, ScheduledChunk
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.llama_server.calls import Calls
from kvsim.engine.schedulers.llama_server.contents import Contents
from kvsim.engine.schedulers.llama_server.parts import BatchPart
from kvsim.engine.schedulers.llama_server.server import SlotServer
from kvsim.engine.schedulers.llama_server.slot import ServerTask, Slot, SlotStage
from kvsim.engine.schedulers.llama_server.wiring import Wiring
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import CacheTotals, Refusal
from kvsim.memory.cells.allocator import CellsAllocator
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class LlamaServerScheduler(Scheduler):
    """Schedules as llama-server does. server: its slots and queue."""

    def __init__(
        self,
        allocator: CellsAllocator,
        max_model_len: int,
        policies: Policies,
        wiring: Wiring,
    ) -> None:
        super().__init__(allocator, max_model_len, policies)
        self._cells = allocator
        self._context = min(wiring.settings.context_tokens, max_model_len)
        self._shifts = wiring.settings.context_shift
        calls = Calls(allocator.cells, self._on_call)
        settings = wiring.settings._replace(context_tokens=self._context)
        self.server = SlotServer(calls, wiring.num_slots, settings, wiring.host, self._ended)
        self._contents = Contents()
        self._part: BatchPart | None = None
        self._in_pass = False
        self._copied: list[int] = []
        self._failed: list[tuple[Sequence, str]] = []
        self._restored = -1  # the slot that was loaded from host memory last

    # --- requests -------------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        if request.prompt_tokens < self._context:
            return None
        return Refusal(
            "its prompt does not fit the context of a slot",
            request.prompt_tokens,
            self._context - 1,
            "tokens",
            "raise n_ctx (the pool), take fewer slots, or share one buffer (kv_unified = true)",
        )

    def output_limit(self, request: Request) -> int:
        if self._shifts:
            return request.output_tokens
        return max(1, self._context - request.prompt_tokens)

    def add(self, seq: Sequence) -> bool:
        super().add(seq)
        prompt, output = self._contents.of(seq)
        self.server.queue.append(ServerTask(prompt, seq.output_tokens, output, owner=seq))
        # Also without an idle slot: requests deferred before a slot is free precede those that are
        # not, the latest of them first (`SlotServer._release`).
        return True

    # --- a part of a pass -----------------------------------------------------------------------

    def schedule(self) -> Plan:
        plan = Plan()
        part = self._next_part()
        plan.failed, self._failed = self._failed, []
        self._part = part
        if part is None:
            return plan
        decoding = set()
        for slot, pos, num, last in part.pieces:
            seq = _sequence(slot)
            if slot.stage is SlotStage.GENERATING:
                decoding.add(seq)
            else:
                self._prompt(plan, slot, seq, pos, num, last=last)
        if decoding:
            passed_over = [seq for seq in self.running if seq.decoding and seq not in decoding]
            self.step_decoders(plan, passed_over)
        else:
            plan.num_paused = self.batch.num
        self._close(plan)
        plan.copies += [HostCopy(num_bytes, self.usage()) for num_bytes in self._copied]
        self._copied.clear()
        return plan

    def _next_part(self) -> BatchPart | None:
        """The next part that finds cells, of this pass or of a new one; None: no slot runs."""
        server = self.server
        while True:
            if self._in_pass:
                part = server.next_part()
                if part is not None:
                    return part
                self._in_pass = False
            if server.idle:
                return None
            server.begin_pass()
            self._in_pass = True

    def _prompt(
        self, plan: Plan, slot: Slot, seq: Sequence, pos: int, num: int, *, last: bool
    ) -> None:
        """Add `num` prompt tokens of `seq` from position `pos` on to the plan. last: they complete
        the prompt.
        """
        if seq not in self.running:
            self.waiting.remove(seq)
            self._count_hit(slot, seq, pos)
            self._cells.numbers[seq] = slot.number
            self.start(seq, plan, pos, num)
        else:
            self.compute(seq, plan, num)
        chunk: ScheduledChunk = plan.chunks[-1]
        if chunk.prior_tokens != pos or chunk.samples != last:
            raise InvariantError(f"{seq} computes from {pos}, not from {chunk.prior_tokens}")

    def _count_hit(self, slot: Slot, seq: Sequence, hit: int) -> None:
        totals = self._cells.totals
        from_host = hit if self._restored == slot.number else 0
        self._cells.totals = CacheTotals(
            totals.query_tokens + seq.prompt_tokens,
            totals.hit_tokens + hit,
            totals.host_hit_tokens + from_host,
            totals.host_bytes,
        )
        if from_host:
            self._restored = -1

    def _on_call(self, name: str, values: dict[str, int]) -> None:
        if name not in ("save", "restore"):
            return
        self._copied.append(values["bytes"])
        totals = self._cells.totals
        self._cells.totals = totals._replace(host_bytes=totals.host_bytes + values["bytes"])
        if name == "restore" and not values["flags"]:
            self._restored = values["seq"]

    def _ended(self, task: ServerTask) -> None:
        """A slot's task has ended. A failed request leaves now, a finished one with the end of the
        plan.
        """
        if task.error is None:
            return
        seq: Sequence = task.owner
        if seq in self.running:
            del self.running[seq]
            if seq in self.batch:
                self.batch.leave(seq)
            self.prefilling.pop(seq, None)
            self.allocator.release(seq)
        else:
            self.waiting.remove(seq)
        self._failed.append((seq, task.error[1]))

    # --- the life of a plan ---------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        if plan.num_paused:
            return 0
        if self._shifts:
            held = [len(slot.tokens) for slot in self.server.slots if slot.running]
            limit = min([limit, *(self._context - 1 - tokens for tokens in held)])
        return super().repeatable(plan, limit) if limit > 0 else 0

    def one_more(self) -> None:
        """Process the last part, and let all decoding sequences decode one more token.

        Sequences that came since then are not in that step.
        """
        assert self._part is not None
        self.server.returned(self._part)
        self.server.begin_pass(admit=False)
        self._part = self.server.next_part()
        if self._part is None or self._part.num_tokens != self.batch.num:
            raise InvariantError(f"{self.batch.num} decoders went on, and not all found room")

    def finish(self, plan: Plan) -> list[Sequence]:
        if self._part is not None:
            self.server.returned(self._part)
            self._part = None
        return super().finish(plan)


def _sequence(slot: Slot) -> Sequence:
    """The sequence that a slot serves."""
    assert slot.task is not None
    seq: Sequence = slot.task.owner
    return seq
