"""Settings that the server derives from its flags."""

from typing import NamedTuple


class SlotSettings(NamedTuple):
    """Settings of the server's slots.

    context_tokens: context size of one slot. checkpoints: most checkpoints of a slot, 0 for a model
    without windows. window: tokens of the sliding window; 0: none.
    """

    context_tokens: int
    n_batch: int
    n_ubatch: int
    unified: bool
    similarity: float = 0.1
    context_shift: bool = False
    cache_reuse: int = 0
    cache_idle_slots: bool = True
    checkpoints: int = 0
    window: int = 0
