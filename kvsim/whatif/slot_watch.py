"""Observes llama-server's slots: what each request hits in its slot, and what other slots held."""

from collections.abc import Iterable

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.llama_server.floats import common_prefix
from kvsim.engine.schedulers.llama_server.scheduler import LlamaServerScheduler
from kvsim.engine.schedulers.llama_server.slot import ServerTask
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.layout import KVLayout
from kvsim.plumbing.options import Options
from kvsim.whatif.watch import QueueWatch


class SlotWatch(QueueWatch):
    """Measures the queue and the slots of one run. layout: bytes and windows of the model's layers.

    prompt_tokens: prompt tokens of all started requests. elsewhere_tokens: tokens that did not hit
    in the chosen slot but were in an idle slot or in host memory. lost_tokens: tokens that were
    nowhere any more but had been in an earlier prompt. num_dropped: prompts that host memory
    dropped.
    """

    def __init__(self, options: Options, layout: KVLayout) -> None:
        super().__init__(options)
        self.prompt_tokens = self.elsewhere_tokens = self.lost_tokens = self.num_dropped = 0
        self._windows = [
            (group.window_tokens, group.bytes_per_token)
            for group in layout.groups
            if group.window_tokens is not None
        ]
        self._tasks: dict[ServerTask, None] = {}
        self._behind_now = self._behind_sum = self._last_ps = self._whole_ps = 0

    @property
    def behind_windows_bytes(self) -> float:
        """Time-weighted mean bytes of tokens that have left their layers' sliding windows, if every
        token were stored.
        """
        return self._behind_sum / self._whole_ps if self._whole_ps else 0.0

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """For each request that starts, compare its hit with what other slots, host memory and
        earlier prompts had.
        """
        super().planned(scheduler, plan, now_ps)
        assert isinstance(scheduler, LlamaServerScheduler)  # ExaminedRun looks at the options
        for slot in scheduler.server.slots:
            if slot.task is not None and slot.stage.value != "started":
                self._started(scheduler, slot.task)
        host = scheduler.server.host
        self.num_dropped = 0 if host is None else host.num_dropped
        self._behind_sum += self._behind_now * (now_ps - self._last_ps)
        self._whole_ps += now_ps - self._last_ps
        held = [len(slot.tokens) for slot in scheduler.server.slots]
        self._behind_now = sum(
            max(0, tokens - window) * size for window, size in self._windows for tokens in held
        )
        self._last_ps = now_ps

    def _started(self, scheduler: LlamaServerScheduler, task: ServerTask) -> None:
        if task in self._tasks:
            return
        server, prompt = scheduler.server, task.prompt
        others = [slot for slot in server.slots if slot.task is not task]
        entries = server.host.entries if server.host is not None else []
        held = [*(slot.tokens for slot in others if not slot.running)]
        held += [entry.tokens for entry in entries]
        found = _longest(held, prompt, task.hit_tokens)
        running = _longest([slot.tokens for slot in others if slot.running], prompt, found)
        once = _longest((past.prompt for past in self._tasks), prompt, running)
        self.prompt_tokens += len(prompt)
        self.elsewhere_tokens += found - task.hit_tokens
        self.lost_tokens += once - running
        self._tasks[task] = None


def _longest(contents: Iterable[list[int]], prompt: list[int], least: int) -> int:
    """Length of the longest prefix of the prompt that any of the contents has, at least `least`.
    The prompt's last token never counts, as it is always computed.
    """
    most = least
    for tokens in contents:
        end = min(len(tokens), len(prompt) - 1)
        if end > most and tokens[most] == prompt[most]:
            most = max(most, min(end, common_prefix(tokens, prompt)))
    return most
