"""vLLM's scheduler with a KV connector over the stages of a pipeline (v1/core/sched/scheduler.py,
0.33).

Blocks that a step in flight may write are not freed, as with two steps in flight on one stage: no
sequence is preempted whose steps have not all returned.
"""

from collections import Counter

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.connected import ConnectedScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.pipelined import PipelinedScheduler
from kvsim.sequence import Sequence


class ConnectedPipelinedScheduler(ConnectedScheduler, PipelinedScheduler):
    """Knows the sequences of each step in flight, and how many tokens each of them puts out."""

    def __init__(self, parts: ContinuousParts, connector: Connector) -> None:
        self._flying: dict[
            Plan, dict[Sequence, int]
        ] = {}  # sequences, and tokens that they put out
        super().__init__(parts, connector, overlaps=True)

    def _base(self, parts: ContinuousParts) -> None:
        PipelinedScheduler.__init__(self, parts)

    def schedule(self) -> Plan:
        plan = super().schedule()
        self._last = None
        self._flying[plan] = self._stepping(plan)
        self._sum_up()
        return plan

    def _sum_up(self) -> None:
        """Tell the device which sequences are in flight."""
        found: Counter[Sequence] = Counter()
        for stepping in self._flying.values():
            for seq, outputs in stepping.items():
                found[seq] += outputs
        self.device.in_flight = dict(found)

    def _stepping(self, plan: Plan) -> dict[Sequence, int]:
        samples = {chunk.seq: int(chunk.samples) for chunk in plan.chunks}
        found: dict[Sequence, int] = {}
        for seq in self.running:
            if seq in samples:
                found[seq] = samples[seq]
            elif self.took_token(seq, plan):
                found[seq] = 1
        return found

    def finish(self, plan: Plan) -> list[Sequence]:
        stepped = self._flying.pop(plan, {})
        self._sum_up()
        if self._knobs.decode_stagger:
            self._name_returned(plan, stepped)
        return super().finish(plan)

    def _name_returned(self, plan: Plan, stepped: dict[Sequence, int]) -> None:
        """What a sequence with no further step in flight has computed becomes known content when
        its token returns; else, and without asynchronous scheduling, with its next step.
        """
        for seq, outputs in stepped.items():
            flies = seq in self.device.in_flight or seq in plan.finishing
            if outputs and seq in self.running and not flies:
                self._blocks.name_returned(seq, self._computed_tokens(seq))
