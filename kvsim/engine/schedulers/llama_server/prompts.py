"""Reuse of a slot's content for a prompt: common prefix, moved runs of tokens, checkpoints."""

from typing import Protocol

from kvsim.engine.schedulers.llama_server.calls import Calls
from kvsim.engine.schedulers.llama_server.floats import common_prefix
from kvsim.engine.schedulers.llama_server.slot import Checkpoint, ServerTask, Slot, SlotStage

LAST_TOKENS = 4  # of a prompt: a separate batch if there are checkpoints


class PromptSettings(Protocol):
    """The server's settings that concern prompts."""

    @property
    def cache_reuse(self) -> int: ...
    @property
    def checkpoints(self) -> int: ...
    @property
    def window(self) -> int: ...


class Prompts:
    """Chooses which prompt tokens a batch computes, and what it reuses of the slot."""

    def __init__(self, calls: Calls, n_batch: int, n_ubatch: int, settings: PromptSettings) -> None:
        self._calls = calls
        self._n_batch = n_batch
        self._n_ubatch = n_ubatch
        self._settings = settings

    def next_part(self, slot: Slot, room: int) -> tuple[int, int]:
        """Add the next tokens of a slot's prompt to a batch, at most `room`; returns (first
        position, number of tokens).

        The tokens count as the slot's content from now on.
        """
        task = slot.task
        assert task is not None
        if slot.stage is SlotStage.STARTED:
            self._begin(slot, task)
            slot.stage = SlotStage.PROMPT
        start, whole = len(slot.tokens), len(task.prompt)
        self._calls.remove(slot.number, start)
        end = min(whole, start + room)
        if self._settings.checkpoints:
            for tail in (LAST_TOKENS + self._n_ubatch, LAST_TOKENS):
                cut = whole - min(self._n_batch, tail)
                if start < cut < end:
                    end = cut
                    break
            if whole - end < self._n_ubatch:
                self._checkpoint(slot)
        slot.tokens += task.prompt[start:end]
        return start, end - start

    def _begin(self, slot: Slot, task: ServerTask) -> None:
        """Find what the prompt reuses of the slot's content, and drop the rest."""
        hit = common_prefix(slot.tokens, task.prompt) if task.cache_prompt else 0
        if task.cache_prompt and self._settings.cache_reuse:
            hit = self._move(slot, task.prompt, hit)
        if self._settings.window and hit:
            hit = self._within_windows(slot, hit, whole=hit == len(task.prompt))
        hit = min(hit, len(task.prompt) - 1)
        slot.checkpoints = [each for each in slot.checkpoints if each.last <= hit]
        del slot.tokens[hit:]
        task.hit_tokens = hit

    def _move(self, slot: Slot, prompt: list[int], hit: int) -> int:
        """Shift matching runs of the slot's tokens to their positions in the prompt; returns the
        length of the reused prefix.

        hit: length of the common prefix without shifts.
        """
        held, at = slot.tokens, hit
        while at < len(held) and hit < len(prompt):
            num = common_prefix(held[at:], prompt[hit:])
            if num < self._settings.cache_reuse:
                at += 1
                continue
            self._calls.remove(slot.number, hit, at)
            self._calls.shift(slot.number, at, at + num, hit - at)
            held[hit : hit + num] = held[at : at + num]
            at, hit = at + num, hit + num
        return hit

    def _within_windows(self, slot: Slot, hit: int, *, whole: bool) -> int:
        """How much of a hit of `hit` tokens can be reused: the window's cells, or those of a
        checkpoint, must reach back far enough.

        whole: the hit is the whole prompt.
        """
        needed = max(0, hit - self._settings.window - whole)
        if self._calls.cache.first_position(slot.number) < needed:
            return hit
        for each in reversed(slot.checkpoints):
            if each.last <= hit and (each.first < needed or each.first == 0):
                self._calls.restore(each.state, slot.number, windows_only=True)
                return min(hit, max(each.first + 1, each.last), each.tokens)
        return 0

    def _checkpoint(self, slot: Slot) -> None:
        """Save the slot's window cells as a checkpoint in host memory, if it has any."""
        cache = self._calls.cache
        first = cache.first_position(slot.number)
        if first < 0:
            return
        held = len(slot.tokens)
        kept = [each for each in slot.checkpoints if each.tokens != held]
        most = self._settings.checkpoints
        state = self._calls.save(slot.number, windows_only=True)
        new = Checkpoint(first, cache.last_position(slot.number), held, state)
        slot.checkpoints = [*kept, new][-most:]
