"""The server's loop (tools/server/server-context.cpp): assigns slots, fills batches, and handles a
full cache.
"""

from collections import deque
from collections.abc import Callable

from kvsim.engine.schedulers.llama_server.calls import Calls
from kvsim.engine.schedulers.llama_server.floats import common_prefix, f32
from kvsim.engine.schedulers.llama_server.host_cache import Entry, HostCache
from kvsim.engine.schedulers.llama_server.parts import BatchPart, BatchPiece, behind, first
from kvsim.engine.schedulers.llama_server.prompts import Prompts
from kvsim.engine.schedulers.llama_server.settings import SlotSettings
from kvsim.engine.schedulers.llama_server.slot import ServerTask, Slot, SlotStage
from kvsim.memory.cells.cache import DONE
from kvsim.memory.cells.field import TokenRun

KEPT_BY_SLOT = 0.5  # of what a slot holds: less, and the host cache is asked
EXCEEDED = (500, "Context size has been exceeded.")


class SlotServer:
    """Slots, the queue before them, and the current batch.

    ended: called with each task that is done, or that failed (`ServerTask.error`).
    """

    def __init__(
        self,
        calls: Calls,
        num_slots: int,
        settings: SlotSettings,
        host: HostCache | None,
        ended: Callable[[ServerTask], None],
    ) -> None:
        self.slots = [Slot(number) for number in range(num_slots)]
        self.queue: deque[ServerTask] = deque()
        self.deferred: deque[ServerTask] = deque()
        self.host = host
        self.num_purged = self.num_halved = self.num_shifted = 0
        self._calls = calls
        self._settings = settings
        self._ended = ended
        self._prompts = Prompts(calls, settings.n_batch, settings.n_ubatch, settings)
        self._frees = 0
        self._batch: list[BatchPiece] = []
        self._offset = 0

    @property
    def idle(self) -> bool:
        """Whether no request is queued or running."""
        return not self.queue and not any(slot.running for slot in self.slots)

    # --- assignment of slots ----------------------------------------------------------------------

    def _admit_queue(self) -> None:
        """Assign slots to tasks that came since the last pass; the others are deferred."""
        for _ in range(len(self.queue)):
            task = self.queue.popleft()
            slot = self._slot_for(task)
            if slot is None:
                self.deferred.append(task)
                continue
            self._launch(task, slot)

    def _slot_for(self, task: ServerTask) -> Slot | None:
        """Choose a slot for a task, and load a matching host-cache entry into it; None: the task
        waits.
        """
        idle = [slot for slot in self.slots if not slot.running]
        slot, by_age = self._chosen(task, idle)
        if slot is None:
            return None
        self._offer(slot, task, by_age=by_age)
        if len(idle) <= len(task.children):
            return None
        return slot

    def _chosen(self, task: ServerTask, idle: list[Slot]) -> tuple[Slot | None, bool]:
        """(the idle slot for a task or None, whether it was chosen as the least recently used)."""
        if task.slot_number is not None:
            return next((slot for slot in idle if slot.number == task.slot_number), None), False
        best, best_share = None, f32(self._settings.similarity)
        if self._settings.similarity > 0:
            for slot in idle:
                share = f32(common_prefix(slot.tokens, task.prompt) / len(task.prompt))
                if slot.tokens and share > best_share:
                    best, best_share = slot, share
        if best is not None:
            return best, False
        return min(idle, key=lambda slot: (slot.freed, -slot.number), default=None), True

    def _offer(self, slot: Slot, task: ServerTask, *, by_age: bool) -> None:
        """Save the slot's content in the host cache if the prompt reuses little of it, and load a
        better match if there is one.

        by_age: the slot was chosen as the least recently used.
        """
        if self.host is None:
            return
        if not by_age and slot.tokens:
            share = f32(common_prefix(slot.tokens, task.prompt) / len(task.prompt))
            if f32(f32(share * len(task.prompt)) / len(slot.tokens)) >= KEPT_BY_SLOT:
                return
        self._save(slot)
        entry = self.host.better(slot.tokens, task.prompt)
        if entry is not None:
            if self._calls.restore(entry.state, slot.number):
                slot.tokens, slot.checkpoints = list(entry.tokens), list(entry.checkpoints)
            else:
                self._clear(slot)
        self.host.settle()

    def _save(self, slot: Slot) -> bool:
        """Save a slot's content in the host cache; False if it is empty or the cache does not take
        it.
        """
        host = self.host
        if host is None or not slot.tokens:
            return False
        state_bytes = self._calls.cache.state_bytes(slot.number)
        beside = sum(each.state.num_bytes for each in slot.checkpoints)
        if not host.takes(slot.tokens, state_bytes + beside):
            return False
        state = self._calls.save(slot.number)
        host.store(Entry(list(slot.tokens), state, list(slot.checkpoints)))
        return True

    def _launch(self, task: ServerTask, slot: Slot) -> None:
        """Let `slot` serve a task; further slots wait to share its prompt for the task's
        children.
        """
        others = [other for other in self.slots if not other.running and other is not slot]
        for child, other in zip(task.children, others, strict=False):
            other.task, other.stage = child, SlotStage.WAITING
            child.slot, child.is_child = other.number, True
        slot.task, slot.stage, task.slot = task, SlotStage.STARTED, slot.number
        if self.host is None or not self._settings.cache_idle_slots:
            return
        for other in self.slots:
            if not other.running:
                if self._save(other):
                    self.host.settle()
                if self._settings.unified:
                    self._clear(other)

    def _clear(self, slot: Slot) -> None:
        """Remove all cells of a slot."""
        self._calls.remove(slot.number, -1)
        slot.tokens, slot.checkpoints = [], []

    def _release(self, slot: Slot) -> None:
        """Free a slot; one deferred task goes to the front of the queue, one for this slot
        first.
        """
        task = slot.task
        assert task is not None
        slot.task, slot.stage = None, SlotStage.IDLE
        self._frees += 1
        slot.freed = self._frees
        if task.is_child:
            self._clear(slot)
        waiting = next((each for each in self.deferred if each.slot_number == slot.number), None)
        if waiting is None and self.deferred:
            waiting = self.deferred[0]
        if waiting is not None:
            self.deferred.remove(waiting)
            self.queue.appendleft(waiting)
        self._ended(task)

    # --- what goes into a batch -------------------------------------------------------------------

    def begin_pass(self, *, admit: bool = True) -> None:
        """Begin a pass: assign slots (admit), shift full contexts, and fill a batch."""
        if admit:
            self._admit_queue()
        if self._settings.context_shift:
            for slot in self.slots:
                self._shift(slot)
        self._batch = [
            self._token(slot) for slot in self.slots if slot.stage is SlotStage.GENERATING
        ]
        room = self._settings.n_batch - len(self._batch)
        for slot in self.slots:
            if room <= 0:
                break
            if slot.stage is SlotStage.STARTED and self._refuses(slot):
                continue
            if slot.stage in (SlotStage.STARTED, SlotStage.PROMPT):
                pos, num = self._prompts.next_part(slot, room)
                assert slot.task is not None
                self._batch.append(BatchPiece(slot, pos, num, pos + num == len(slot.task.prompt)))
                room -= num
        self._offset = 0

    def _token(self, slot: Slot) -> BatchPiece:
        """The last output token of a generating slot, as a piece of the next batch."""
        assert slot.task is not None
        slot.tokens.append(slot.task.output(slot.task.num_outputs - 1))
        return BatchPiece(slot, len(slot.tokens) - 1, 1, last=True)

    def _refuses(self, slot: Slot) -> bool:
        """Whether a slot's prompt is too long for it; if so its task ends with an error."""
        task, limit = slot.task, self._settings.context_tokens
        assert task is not None
        if len(task.prompt) < limit:
            return False
        task.error = (
            400,
            f"request ({len(task.prompt)} tokens) exceeds the available context size "
            f"({limit} tokens), try increasing it",
        )
        self._release(slot)
        return True

    def _shift(self, slot: Slot) -> None:
        """Context shift: if a generating slot is full, drop the older half of its tokens beyond
        num_keep.
        """
        task, context = slot.task, self._settings.context_tokens
        held = len(slot.tokens)
        if task is None or slot.stage is not SlotStage.GENERATING or held + 1 < context:
            return
        keep = len(task.prompt) if task.num_keep < 0 else task.num_keep
        keep = min(keep, context - 4)
        drop = (held - keep) // 2
        self._calls.remove(slot.number, keep, keep + drop)
        self._calls.shift(slot.number, keep + drop, held, -drop)
        del slot.tokens[keep : keep + drop]
        slot.checkpoints = []
        task.truncated = True
        self.num_shifted += 1

    # --- computing it -----------------------------------------------------------------------------

    def next_part(self) -> BatchPart | None:
        """Decode the next part of the batch, as many tokens as find cells; None: nothing is left.

        Also None if not even one token finds a cell: every running request has failed.
        """
        size = self._settings.n_batch
        pieces = behind(self._batch, self._offset)
        while pieces:
            part = first(pieces, size)
            runs = [TokenRun((piece.slot.number,), piece.pos, piece.num) for piece in part]
            if self._calls.decode(runs) == DONE:
                return self._computed(part)
            if size == 1:
                self._fail_all()
                return None
            if not self._purge():
                size //= 2
                self.num_halved += 1
        return None

    def _computed(self, part: list[BatchPiece]) -> BatchPart:
        num_tokens = sum(piece.num for piece in part)
        self._offset += num_tokens
        sampling = []
        for piece in part:
            if piece.last:
                sampling.append(piece.slot)
                if piece.slot.stage is SlotStage.PROMPT:
                    sampling += self._share_prompt(piece.slot)
        sampling.sort(key=lambda slot: slot.number)
        return BatchPart(part, sampling, num_tokens)

    def _share_prompt(self, parent: Slot) -> list[Slot]:
        """Copy the computed prompt to the slots that waited for it; returns these."""
        assert parent.task is not None
        sharing = [self.slots[child.slot] for child in parent.task.children]
        for slot in sharing:
            self._calls.remove(slot.number, -1)
            self._calls.share(parent.number, slot.number)
            slot.tokens, slot.checkpoints = list(parent.tokens), list(parent.checkpoints)
        return sharing

    def _purge(self) -> bool:
        """Clear the first idle slot that holds tokens; False: there is none, or slots share no
        buffer.
        """
        for slot in self.slots if self._settings.unified else ():
            if not slot.running and slot.tokens:
                self._clear(slot)
                self.num_purged += 1
                return True
        return False

    def _fail_all(self) -> None:
        """End every running request with an error and remove its cells."""
        self._batch, self._offset = [], 0
        for slot in self.slots:
            if slot.task is not None:
                slot.task.error = EXCEEDED
                self._release(slot)
                self._clear(slot)

    def returned(self, part: BatchPart) -> list[Slot]:
        """Process the outputs of a part: free and return the slots of finished requests."""
        done = []
        for slot in part.sampling:
            task = slot.task
            assert task is not None
            slot.stage = SlotStage.GENERATING
            task.num_outputs += 1
            full = len(slot.tokens) + 1 >= self._settings.context_tokens
            if full and not self._settings.context_shift:
                task.truncated = True
            if task.num_outputs >= task.most_outputs or (full and not self._settings.context_shift):
                done.append(slot)
                self._release(slot)
        return done
