"""vLLM's scheduler with a KV connector and tokens drafted ahead (v1/core/sched/scheduler.py, 0.33).

Sequences take their steps in turns. What the connector stores, and what others find, ends with the
tokens whose ids have returned: drafts are no content. A load takes no slots for drafts.
"""

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.connected import ConnectedScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.speculating import SpeculatingScheduler
from kvsim.engine.speculation.verifier import NextStep, Verifier
from kvsim.sequence import Sequence


class ConnectedSpeculatingScheduler(ConnectedScheduler, SpeculatingScheduler):
    """verifier: decides which drafts are accepted."""

    def __init__(
        self, parts: ContinuousParts, connector: Connector, verifier: Verifier, *, overlaps: bool
    ) -> None:
        self._drafted_by = verifier
        self._unfreed: list[Sequence] = []  # finished, with a step in flight
        super().__init__(parts, connector, overlaps=overlaps)

    def _base(self, parts: ContinuousParts) -> None:
        SpeculatingScheduler.__init__(self, parts, self._drafted_by)

    def schedule(self) -> Plan:
        plan = super().schedule()
        self.device.note_tables(plan)
        return plan

    def _computed_tokens(self, seq: Sequence) -> int:
        return seq.num_computed

    def _stepping(self, plan: Plan) -> dict[Sequence, int]:
        outputs = {chunk.seq: chunk.num_outputs for chunk in plan.chunks}
        return {seq: outputs[seq] for seq in self.running if seq in outputs}

    @property
    def unfreed_blocks(self) -> int:
        """Blocks of finished sequences that a step in flight may write."""
        return sum(sum(self._blocks.held_blocks(seq)) for seq in self._unfreed)

    def _leave(self, seq: Sequence) -> None:
        if not (self._defers_frees and seq in self.device.in_flight):
            self.device.forget(seq)
            super()._leave(seq)
            return
        self.allocator.checkpoint(seq, seq.final_tokens)
        self._blocks.leave_behind(seq)
        self.connector.finished(seq)
        seq.finished = True
        del self.running[seq]
        self._unfreed.append(seq)

    def finish(self, plan: Plan) -> list[Sequence]:
        if not plan.empty:
            for seq in self._unfreed:
                self.device.forget(seq)
                self.allocator.release(seq)
            self._unfreed = []
        return super().finish(plan)

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        super()._preempt(victim, plan)
        self.device.forget(victim)

    def _promised_blocks(self, plan: Plan) -> int:
        """A prompt that ends in this step still counts, with slots for its drafts, unless it begins
        in this step without a load.
        """
        lacking = self._blocks.lacking_blocks
        ends = {chunk.seq for chunk in plan.chunks if chunk.samples}
        whole = ends & ({seq for seq, _, _ in plan.admitted} - set(self._resumed))
        promised = sum(lacking(seq, seq.num_tokens) for seq in self.queues.holding)
        prompts = (seq for seq in self.prefilling if seq not in whole)
        return promised + sum(lacking(seq, seq.num_tokens - (seq in ends)) for seq in prompts)

    def _verify(self, step: NextStep, plan: Plan) -> bool:
        return super()._verify(step, plan) and not self._stuck

    def _name_passed_over(self, plan: Plan) -> None:
        """Returned steps have named what they computed."""

    def repeatable(self, plan: Plan, limit: int) -> int:
        return 0
