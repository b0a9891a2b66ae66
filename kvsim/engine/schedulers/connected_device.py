"""The blocks and tokens on the device that a connector of vLLM may read."""

from collections.abc import Callable

from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.plan import Plan
from kvsim.memory.loading import FreeBlock, HeldBlock, HoldingPromise, LoadingPromise, NamedState
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence


class ConnectedDevice:
    """The answers of one scheduler over one allocator; see `DeviceBlocks`.

    computed_tokens: slots of a sequence, including those of the step being scheduled. in_flight:
    sequences of the previous step while it is in flight, each with whether it samples a token.
    """

    def __init__(
        self,
        blocks: LoadingPromise,
        computed_tokens: Callable[[Sequence], int],
        batch: DecodeBatch,
    ) -> None:
        self._blocks = blocks
        self._copied = blocks if isinstance(blocks, HoldingPromise) else None
        self._batch = batch
        self.computed_tokens = computed_tokens
        self.in_flight: dict[Sequence, bool] = {}
        self._now: dict[Sequence, bool] = {}  # of the step being scheduled
        self._prior: dict[Sequence, int] = {}

    def scheduled(self, plan: Plan, stepping: dict[Sequence, bool]) -> None:
        """A step is decided. stepping: its sequences, each with whether it samples a token."""
        self._now = stepping
        self._prior = {chunk.seq: chunk.prior_tokens for chunk in plan.chunks}

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
        """Tokens of the prompt, and of outputs that have returned."""
        slots = self._batch.slots
        outputs = slots(seq) - seq.prompt_tokens + 1 if seq.decoding else seq.num_outputs
        unreturned = int(self._now.get(seq, False)) + int(self.in_flight.get(seq, False))
        return seq.prompt_tokens + outputs - unreturned

    def returned_tokens(self, seq: Sequence) -> int:
        if seq not in self._now:
            return self.computed_tokens(seq)
        before = self._prior.get(seq, self.computed_tokens(seq) - 1)
        return before - int(self.in_flight.get(seq, False))

    def keys_of(self, seq: Sequence, start: int, end: int) -> list[int]:
        return self._holding.keys_of(seq, start, end)

    def named_blocks(
        self, seq: Sequence, start: int, end: int
    ) -> list[tuple[int, HeldBlock] | None]:
        return self._holding.named_blocks(seq, start, end)

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
