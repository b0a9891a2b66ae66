"""The scheduler's half of a KV connector (vLLM 0.33, v1/core/sched/scheduler.py): sequences that
load, blocks held for transfer, and the metadata of each step.
"""

from collections.abc import Callable

from kvsim.engine.connectors.connector import Connector, Decided, Report
from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.plan import Plan
from kvsim.engine.policies.queue import WaitingQueue
from kvsim.engine.schedulers.connected_device import ConnectedDevice
from kvsim.engine.schedulers.two_queues import HoldingQueues
from kvsim.memory.allocator import Allocator
from kvsim.memory.loading import LoadingPromise, LoadsBlocks
from kvsim.plumbing.errors import InvariantError
from kvsim.results.tier_hits import TierHit
from kvsim.sequence import Sequence


class Connection:
    """A scheduler's link to its connector; with NO_CONNECTOR nothing ever waits or loads.

    connects: there is a connector. queues: loading sequences before the waiting ones. put_off:
    sequences with a pending lookup in the last step. loads: those that began to load in it; found:
    tokens of each load, including loads that the step itself waits for. kept: finished sequences
    with blocks that the connector still needs. unready: sequences that own blocks and lack a slot
    or embeddings. hit_tokens: see `RunTotals`.
    """

    def __init__(
        self,
        connector: Connector,
        allocator: Allocator,
        waiting: WaitingQueue,
        batch: DecodeBatch,
        computed_tokens: Callable[[Sequence], int],
    ) -> None:
        self.connector, self.connects = connector, connector.connects
        self.queues = HoldingQueues(waiting)
        self.kept: dict[Sequence, None] = {}
        self.loads: list[Sequence] = []
        self.put_off: list[Sequence] = []
        self.found: list[tuple[Sequence, TierHit]] = []
        self.num_unready = self.hit_tokens = 0
        self._allocator = allocator
        if not self.connects:
            return
        blocks = allocator.loading if isinstance(allocator, LoadsBlocks) else None
        if blocks is None:
            raise InvariantError(f"{type(allocator).__name__} has no blocks to load into")
        self.blocks: LoadingPromise = blocks
        self.device = ConnectedDevice(self.blocks, computed_tokens, batch)
        connector.attach(self.device)

    def begin(self) -> None:
        """A schedule() begins, and there is a connector: reset its lists."""
        self.loads, self.put_off, self.found = [], [], []
        self.device.decided = None

    def decide(
        self, plan: Plan, running: tuple[Sequence, ...], outputs: dict[Sequence, int]
    ) -> None:
        """schedule() has decided `plan`. outputs: its sequences, each with the tokens that it puts
        out.
        """
        self.device.scheduled(plan, outputs)
        admitted = tuple(seq for seq, _, _ in plan.admitted)
        self.connector.scheduled(
            Decided(plan, running, tuple(outputs), tuple(self.loads), admitted)
        )

    def returned(self, report: Report, now_ps: int) -> list[Sequence]:
        """Process the connector's report with the output of a step. Returns sequences that end with
        an error since their load failed.
        """
        self.connector.returned(report, now_ps)
        for seq in report.loaded:
            self.queues.reported(seq)
        for seq in report.sent:
            del self.kept[seq]
            self._allocator.release(seq)
        failed: list[Sequence] = []
        for seq in report.failed:
            if self.connector.recomputes_failed:
                self.queues.has_failed(seq)
                continue
            self.queues.let_go(seq)
            self._allocator.release(seq)
            failed.append(seq)
        return failed

    def keeps(self, seq: Sequence) -> bool:
        """A running sequence finishes. Whether its blocks stay for a reader."""
        self.device.forget(seq)
        self.blocks.leave_behind(seq)
        if not self.connector.finished(seq):
            return False
        self.blocks.keep_for_reader(seq)
        self.kept[seq] = None
        return True

    def quiet_steps(self, plan: Plan, running: tuple[Sequence, ...], limit: int) -> int:
        """Number of further steps that decode as `plan` and change nothing of the connector."""
        if self.connector.busy or self.kept:
            return 0
        return self.connector.quiet_steps(Decided(plan, running, running, (), ()), limit)
