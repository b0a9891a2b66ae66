"""vLLM's data-parallel ranks of a mixture of experts: attention is separate, and all ranks compute
each forward pass together (0.33, v1/engine/core.py `DPEngineCoreProc`, v1/worker/gpu/dp_utils.py).

The i-th forward of every rank is one forward of all. It is launched when all ranks have called for
it. It starts when the last rank has launched it, and lasts as long as the slowest rank needs. A
rank without work calls for a dummy forward, which returns at its launch. So dummies are launched
ahead of the forwards that the GPUs compute.

Ranks agree on whether any rank has work in the first iteration of a wave, and then in every
sync_steps-th one. A wave ends when no rank has work. The next request starts a wave of all ranks.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Engine, Executor
from kvsim.engine.executor.rank import RankExecutor


class Forward(NamedTuple):
    """One forward of all ranks. real: for each rank, whether it had tokens (else a dummy)."""

    wave: int
    launch_ps: int
    start_ps: int
    end_ps: int
    real: tuple[bool, ...]


class Ranks:
    """The ranks of one server. sync_steps: iterations between two agreements.

    no_tiers: see `Waves`. num_waves, num_steps: number of waves and forwards so far.
    num_dummy_steps: dummy forwards so far, summed over ranks. goes_on: whether any rank had
    unfinished requests at the last agreement. forwards: receives each forward; None: forwards are
    not recorded.
    """

    no_tiers = False

    def __init__(self, env: EngineClock, sync_steps: int) -> None:
        self._env, self._sync_steps = env, sync_steps
        self._ranks: list[RankExecutor] = []
        self._cores: list[EngineCore] = []
        self._computed_ps = 0
        self._agreement, self._num_agreed, self._anyone = simpy.Event(env), 0, False
        self.goes_on = False
        self.num_waves = self.num_steps = self.num_dummy_steps = 0
        self.forwards: list[Forward] | None = None

    def executor(self, *, connected: bool) -> Callable[[EngineCore], Executor]:
        """Factory of the executor of one more rank. connected: it has a KV connector."""
        return partial(self._executor, connected=connected)

    def _executor(self, core: EngineCore, *, connected: bool) -> Executor:
        made = RankExecutor(core, self, connected=connected)
        self._ranks.append(made)
        self._cores.append(core)
        return made

    def join(self, engine: Engine) -> None:
        """Start the engine of a rank."""
        engine.start()

    # --- waves ----------------------------------------------------------------------------------

    def start_wave(self, first: RankExecutor) -> None:
        """The idle rank `first` has received a request: wake all other ranks."""
        self.num_waves += 1
        for rank, core in zip(self._ranks, self._cores, strict=True):
            if rank is not first:
                rank.wakes = True
                core.cut()

    def agrees_after(self, num_forwards: int) -> bool:
        """Whether ranks agree at the end of iteration `num_forwards` of a wave (1, 2, ...)."""
        return num_forwards == 1 or num_forwards % self._sync_steps == 0

    def agree(self, *, unfinished: bool) -> simpy.Event:
        """Register that one rank has reached the agreement. The returned event triggers when all
        ranks have, after `goes_on` is set. unfinished: whether this rank has unfinished requests.
        """
        event = self._agreement
        self._num_agreed += 1
        self._anyone = self._anyone or unfinished
        if self._num_agreed == len(self._ranks):
            self.goes_on = self._anyone
            event.succeed()
            self._agreement, self._num_agreed, self._anyone = simpy.Event(self._env), 0, False
        return event

    # --- forwards -------------------------------------------------------------------------------

    def meet(self) -> None:
        """Launch all forwards that every rank has called for."""
        while True:
            for rank in self._ranks:
                while (taken := rank.worker.take_empty(self._computed_ps)) is not None:
                    rank.computed(*taken)
            workers = [rank.worker for rank in self._ranks]
            times_ps = [worker.meets_at() for worker in workers]
            known_ps = [at_ps for at_ps in times_ps if at_ps is not None]
            if len(known_ps) < len(workers):
                return
            meet_ps = max(known_ps)
            launches_ps = [worker.launch(meet_ps, self._computed_ps) for worker in workers]
            start_ps = max(*launches_ps, self._computed_ps)
            end_ps = start_ps + max(worker.own_ps for worker in workers)
            real = []
            for rank, launch_ps in zip(self._ranks, launches_ps, strict=True):
                call, poll_ps = rank.worker.compute(launch_ps, start_ps, end_ps)
                rank.computed(call, poll_ps)
                real.append(call.plan is not None)
            self._computed_ps = end_ps
            self.num_steps += 1
            self.num_dummy_steps += real.count(False)
            if self.forwards is not None:
                wave = self.num_waves - 1
                self.forwards.append(Forward(wave, meet_ps, start_ps, end_ps, tuple(real)))
