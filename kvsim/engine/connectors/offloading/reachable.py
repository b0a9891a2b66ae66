"""Selects the chunks of sliding-window layers to store: only those that a hit can need.

vLLM 0.33, kv_connector/v1/offloading/scheduler.py; the device caches blocks of windows by the same
rule.
"""

from kvsim.engine.connectors.offloading.settings import OffloadedGroup, OffloadSettings
from kvsim.plumbing.units import ceil_div


class StoredReach:
    """The blocks of one layer group that a request stores, since a later hit can need them.

    A group with drafter layers stores one block more after each possible end of a hit, since its
    hits drop their last block.

    prompt_tokens: length of the prompt. junction_tokens: the shared-prefix boundary, after which
    other prompts diverged; 0: none. horizon: number of blocks up to the end of the request's last
    segment; None: not known yet. all: every block can be needed.
    """

    def __init__(
        self,
        settings: OffloadSettings,
        group: OffloadedGroup,
        prompt_tokens: int,
        junction_tokens: int,
        horizon: int | None,
    ) -> None:
        size, aligned = group.block_tokens, settings.alignment_tokens
        self.all = not group.slides or not aligned or aligned % size > 0
        if self.all:
            return
        assert group.reach_tokens is not None
        self._behind = behind = int(group.drafts)
        self._need = need = ceil_div(group.reach_tokens - 1, size) + behind
        interval = settings.retention_tokens
        step = aligned if interval is None else interval
        self._segment = step // size
        self._ends: list[int] = []
        if step and need >= self._segment:
            self.all = True
        elif interval is None:
            if horizon is not None and horizon % self._segment and not behind:
                self._ends = [horizon]
        else:
            ends = (prompt_tokens - 1, junction_tokens)
            self._ends = [end // aligned * aligned // size + behind for end in ends]

    def has(self, block: int) -> bool:
        """Whether a hit can need block number `block`."""
        if self.all:
            return True
        segment, need, behind = self._segment, self._need, self._behind
        if segment and block >= behind and (block - behind) % segment >= segment - need:
            return True
        return any(end - need <= block < end for end in self._ends)

    def any_of(self, first: int, count: int) -> bool:
        """Whether a hit can need any of `count` blocks from number `first` on."""
        return any(self.has(block) for block in range(first, first + count))
