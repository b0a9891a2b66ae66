"""Which chunks of a window's group are stored: those that a hit can need (vLLM 0.33,
kv_connector/v1/offloading/scheduler.py; the device keeps blocks of windows by the same rule).
"""

from kvsim.engine.connectors.offloading.settings import OffloadedGroup, OffloadSettings
from kvsim.plumbing.units import ceil_div


def is_reachable(
    settings: OffloadSettings,
    group: OffloadedGroup,
    place: int,
    prompt_tokens: int,
    junction_tokens: int,
) -> bool:
    """Whether a request with such a prompt stores the chunk at this place of a group.

    junction_tokens: after so many tokens others were seen to part from it; 0: nowhere.
    """
    if group.window_tokens is None:
        return True
    aligned, interval = settings.alignment_tokens, settings.retention_tokens
    size = group.chunk_tokens
    need = ceil_div(group.window_tokens - 1, group.block_tokens) * group.block_tokens
    start, end = place * size, (place + 1) * size
    step = aligned if interval is None else interval
    if step:
        # Of the boundaries behind the chunk's start, the nearest one looks furthest back to it.
        nearest = (start // step + 1) * step
        if nearest - need < end:
            return True
    ends = ((prompt_tokens - 1) // aligned * aligned, junction_tokens // aligned * aligned)
    return any(start < at and at - need < end for at in ends)
