"""The worker of a data-parallel rank, one thread that executes the engine's calls in order (vLLM
0.33, v1/worker/gpu/model_runner.py, v1/worker/gpu/dp_utils.py).
"""

from collections import deque

import simpy

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.plan import Plan


class Call:
    """One call of a rank's worker. at_ps: time of the call. plan: the step; None: a dummy forward.
    own_ps: duration of its forward on this rank alone.

    start_ps, end_ps: start and end of its forward on the GPUs. held_up_ps: delay of its launch by
    copies. ready_ps: time at which the engine can read the output; None until the call is launched.
    launched: an event, triggered when ready_ps is set.
    """

    def __init__(self, at_ps: int, plan: Plan | None, own_ps: int) -> None:
        self.at_ps, self.plan, self.own_ps = at_ps, plan, own_ps
        self.start_ps = self.end_ps = self.held_up_ps = 0
        self.ready_ps: int | None = None
        self.launched: simpy.Event | None = None

    @property
    def is_forward(self) -> bool:
        """Whether the call is a forward of all ranks: it has tokens, or is a dummy."""
        return self.plan is None or not self.plan.empty


class RankWorker:
    """The calls of one rank that are not launched yet, and the times of the last launched one.

    dummy_ps: duration of a dummy forward. waits: without asynchronous scheduling, the thread waits
    for the end of each forward with tokens. token_ps: end of the last forward with tokens.
    """

    def __init__(self, dummy_ps: int, connector: Connector, *, waits: bool) -> None:
        self._dummy_ps, self._connector, self._waits = dummy_ps, connector, waits
        self.calls: deque[Call] = deque()
        self._free_ps = self._answered_ps = self.token_ps = 0

    def meets_at(self) -> int | None:
        """Earliest time at which the thread can launch the next forward; None: no call is queued.
        Calls without tokens must be taken first (`take_empty`).
        """
        return max(self.calls[0].at_ps, self._free_ps) if self.calls else None

    @property
    def own_ps(self) -> int:
        """Duration of the next forward on this rank alone."""
        call = self.calls[0]
        return self._dummy_ps if call.plan is None else call.own_ps

    def take_empty(self, computed_ps: int) -> tuple[Call, int] | None:
        """Execute the next call if it is a step without tokens; returns (call, time of its poll for
        copies). None: no call is queued, or the next one is a forward. computed_ps: end of the
        forwards launched so far.
        """
        if not self.calls or self.calls[0].is_forward:
            return None
        begin_ps = max(self.calls[0].at_ps, self._free_ps)
        call = self.calls.popleft()
        launch_ps = self._connector.launch(begin_ps, computed_ps)
        self._note_wait(launch_ps - begin_ps)
        self._connector.launched(launch_ps, max(launch_ps, computed_ps))
        self._free_ps = launch_ps + self._connector.empty_poll_ps
        self._answer(call, self._free_ps)
        return call, self._free_ps

    def launch(self, meet_ps: int, computed_ps: int) -> int:
        """Submit the copies that precede the next forward, which all ranks can launch at meet_ps at
        the earliest. Returns the time at which this rank can launch it.
        """
        call = self.calls[0]
        if call.plan is None:
            return meet_ps
        launch_ps = self._connector.launch(meet_ps, computed_ps)
        self._note_wait(launch_ps - meet_ps)
        call.held_up_ps = max(0, launch_ps - max(meet_ps, computed_ps))
        return launch_ps

    def compute(self, launch_ps: int, start_ps: int, end_ps: int) -> tuple[Call, int]:
        """Execute the next forward, launched at launch_ps and computed by all ranks from start_ps
        to end_ps. Returns (call, time of its poll for copies).
        """
        call = self.calls.popleft()
        call.start_ps, call.end_ps = start_ps, end_ps
        self._free_ps = launch_ps
        if call.plan is None:
            self._answer(call, launch_ps)
            return call, launch_ps
        self._connector.launched(launch_ps, end_ps)
        poll_ps = self._free_ps = launch_ps + self._connector.poll_ps
        self._answer(call, max(poll_ps, end_ps))
        if self._waits:
            self._free_ps = max(poll_ps, end_ps)
        return call, poll_ps

    def _answer(self, call: Call, ready_ps: int) -> None:
        """Set the time at which the engine can read the output of `call`: not before those of
        earlier calls.
        """
        call.ready_ps = self._answered_ps = max(ready_ps, self._answered_ps)
        if call.launched is not None:
            call.launched.succeed()

    def _note_wait(self, wait_ps: int) -> None:
        if self._connector.journal is not None:
            self._connector.journal.add("wait", wait_ps)
