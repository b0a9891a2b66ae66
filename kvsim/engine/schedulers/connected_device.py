"""Answers of vLLM's scheduler to its connector about blocks and tokens on the device."""

from collections.abc import Callable

from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.plan import Plan
from kvsim.engine.speculation.lockstep_batch import LockstepBatch
from kvsim.memory.loading import FreeBlock, HeldBlock, HoldingPromise, LoadingPromise, NamedState
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence


class ConnectedDevice:
    """The answers for one scheduler over one allocator; see `DeviceBlocks`.

    computed_tokens: gives the slots of a sequence, including those of the step being scheduled.
    decided: with one stage, the newest plan until the next schedule(). Only its outputs count as in
    flight then, as the plan before it is processed first.
    """

    def __init__(
        self,
        blocks: LoadingPromise,
        computed_tokens: Callable[[Sequence], int],
        batch: DecodeBatch,
    ) -> None:
        self._blocks = blocks
        self._copied = blocks.copied
        self._batch = batch
        self._computed_tokens = computed_tokens
        self.decided: Plan | None = None
        self._now: dict[Sequence, int] = {}  # of the step being scheduled
        self._prior: dict[Sequence, int] = {}
        self._ends: dict[Sequence, int] = {}  # of steps that verify drafts
        self._held: dict[Sequence, list[int]] = {}  # blocks before the step, with drafts
        self._believed: dict[Sequence, int] = {}  # outputs of the last step, with drafts

    def scheduled(self, plan: Plan, stepping: dict[Sequence, int]) -> None:
        """Note a scheduled step. stepping: its sequences, each with its output tokens."""
        self._now = stepping
        chunks = plan.chunks
        if plan.num_drafts:
            chunks = [*chunks, *self._batch.newest_left()]
        self._ends = {c.seq: c.prior_tokens + c.new_tokens for c in chunks if c.drafts}
        self._prior = {chunk.seq: chunk.prior_tokens for chunk in chunks}

    def note_tables(self, plan: Plan) -> None:
        """Record the numbers of blocks in this step: later steps append blocks for drafts."""
        for chunk in plan.chunks:
            self._held[chunk.seq] = self._blocks.held_blocks(chunk.seq)
            self._believed[chunk.seq] = 1 + chunk.drafts
        self.note_turns()

    def forget(self, seq: Sequence) -> None:
        """Drop a sequence that holds no blocks."""
        self._held.pop(seq, None)
        self._believed.pop(seq, None)

    def verifies_as_batch(self, batch: LockstepBatch) -> None:
        """Set the batch of sequences that verify drafts in lockstep, without chunks in the plan."""
        self._batch, batch.turned = batch, []

    def note_turns(self) -> None:
        """Record the numbers of blocks of batch members that took blocks for drafts."""
        for seq in self._batch.take_turned():
            self._held[seq] = self._blocks.held_blocks(seq)

    def held_before(self, seq: Sequence) -> list[int] | None:
        """Number of blocks in each layer group before the step being scheduled; None: exactly
        ceil(tokens / block_size).
        """
        return self._held.get(seq)

    def computed_tokens(self, seq: Sequence) -> int:
        """Slots of a sequence, including those of the step being scheduled and all its drafts."""
        last = self._batch.last_step(seq)
        if last is not None:
            return last[0] + self._batch.step_tokens
        end = self._ends.get(seq)
        return self._computed_tokens(seq) if end is None else end

    def blocks_of(self, seq: Sequence) -> list[list[int]]:
        return self._blocks.tables_of(seq)[0]

    def held_blocks(self, seq: Sequence) -> list[int]:
        return self._blocks.held_blocks(seq)

    def skipped_blocks(self, seq: Sequence) -> list[int]:
        return self._blocks.tables_of(seq)[1]

    def junction_tokens(self, seq: Sequence) -> int:
        return self._blocks.junction_tokens(seq)

    def take_named_states(self) -> dict[Sequence, list[NamedState]]:
        return self._blocks.take_named_states()

    def known_tokens(self, seq: Sequence) -> int:
        """Number of prompt tokens and of processed output tokens."""
        last = self._batch.last_step(seq)
        if last is not None:
            return last[0] + 1  # one is sampled, and has not been computed
        slots = self._batch.slots
        outputs = slots(seq) - seq.prompt_tokens + 1 if seq.decoding else seq.num_outputs
        unreturned = self._now.get(seq, 0) + self._in_flight(seq)
        return seq.prompt_tokens + outputs - unreturned

    def steps_below(self, seq: Sequence, tokens: int) -> int:
        last = self._batch.last_step(seq)
        if last is None:
            return max(0, tokens - self.known_tokens(seq) - 1)
        return max(0, self._batch.steps_below(seq, tokens - 1))

    def returned_tokens(self, seq: Sequence) -> int:
        last = self._batch.last_step(seq)
        if last is not None:
            return last[0]
        if seq not in self._now:
            return self.computed_tokens(seq)
        before = self._prior.get(seq, self.computed_tokens(seq) - 1)
        in_flight = self._in_flight(seq)
        return before - (self._believed.get(seq, in_flight) if in_flight else 0)

    def _in_flight(self, seq: Sequence) -> int:
        """Number of output tokens of `seq` that are still in flight when the next step is
        scheduled.
        """
        plan = self.decided
        if plan is None or seq.in_flight is not plan:
            return seq.placeholders
        return plan.outputs.get(seq, 0)

    def keys_of(self, seq: Sequence, start: int, end: int, group: int) -> list[int]:
        return self._holding.keys_of(seq, start, end, group)

    def named_blocks(
        self, seq: Sequence, start: int, end: int, group: int
    ) -> list[tuple[int, HeldBlock] | None]:
        return self._holding.named_blocks(seq, start, end, group)

    def named_block(self, number: int) -> tuple[int, HeldBlock] | None:
        return self._holding.named_block(number)

    def still_free(self, block: FreeBlock) -> FreeBlock | None:
        return self._holding.still_free(block)

    def free_blocks(self, after: FreeBlock | None, most: int) -> list[FreeBlock]:
        return self._holding.free_blocks(after, most)

    def hold(self, blocks: list[HeldBlock]) -> None:
        self._holding.hold(blocks)

    def let_go(self, blocks: list[HeldBlock]) -> None:
        self._holding.let_go(blocks)

    @property
    def _holding(self) -> HoldingPromise:
        if self._copied is None:
            raise InvariantError(f"{type(self._blocks).__name__} has no blocks that copies hold")
        return self._copied
