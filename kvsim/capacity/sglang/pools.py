"""Division of bytes into SGLang's pools: tokens that every layer keeps, tokens of sliding windows,
states of recurrent layers.

    sliding windows    T = bytes // (full cell + ratio * window cell), the windows' pool ratio * T;
                       without a radix cache and with max_running_requests given, as many as these
                       can hold at once, and what is left for T
    recurrent states   bytes * r / (1 + r) for states, one of which is padding; the rest for KV. A
                       model of states alone leaves the rest unused, and counts as many tokens as
                       its longest sequence has, or max_total_tokens

Not recorded: the source says so (HybridSWAPoolConfigurator, SWARequestCapPoolConfigurator,
`_handle_max_mamba_cache`, `resolve_max_num_reqs`).
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvsim.capacity.sglang.settings import SglangSettings
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.radix_hybrid.strategy import states_by_ratio
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div

SWA_EVICTION_INTERVAL = 128
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096


class Pools(NamedTuple):
    """Sizes of SGLang's pools. tokens: tokens of the pool by which requests are admitted. kv_bytes:
    its bytes, over all layers that keep all tokens. window_tokens, window_bytes: size of the
    sliding windows' pool; None: the model has no windows, or SGLang keeps them whole. states,
    state_bytes: slots of recurrent states, and the bytes of all, padding included.
    max_running_requests: requests that may hold memory at once.
    """

    tokens: int
    kv_bytes: int
    window_tokens: int | None
    window_bytes: int
    states: int | None
    state_bytes: int
    max_running_requests: int


def divide(
    budget: int,
    layout: KVLayout,
    settings: SglangSettings,
    *,
    chunk: int,
    max_model_len: int,
) -> Pools:
    """Divide `budget` bytes into SGLang's pools for the layers of `layout`. chunk: tokens of a
    prefill chunk; -1: whole prompts.
    """
    states = [group for group in layout.groups if group.kind == "recurrent"]
    windows = [group for group in layout.groups if group.kind == "sliding"]
    full = [group for group in layout.groups if group not in states and group not in windows]
    slots, state_bytes = _states(budget, states, settings)
    rest, page = budget - state_bytes, settings.page_size
    full_cell, window_cell = _cell(full), _cell(windows)
    kept = _kept(settings, windows, chunk)
    if kept is None:
        cell = full_cell + settings.swa_full_tokens_ratio * window_cell if full else window_cell
        counted = settings.max_total_tokens or max_model_len  # where a token takes no bytes
        tokens = _whole(int(rest // cell) if cell else counted, page)
    else:
        tokens = _whole((rest - kept * window_cell) // full_cell, page)
    if settings.max_total_tokens is not None:
        tokens = min(tokens, _whole(settings.max_total_tokens, page))
    window_tokens = None
    if windows:
        ratio = settings.swa_full_tokens_ratio if full else 1
        window_tokens = _whole(int(tokens * ratio), page) if kept is None else kept
        _check_windows(windows, window_tokens, page)
    return Pools(
        tokens=tokens,
        kv_bytes=tokens * full_cell,
        window_tokens=window_tokens,
        window_bytes=(window_tokens or 0) * window_cell,
        states=slots,
        state_bytes=state_bytes,
        max_running_requests=_requests(
            settings,
            tokens,
            max_model_len,
            None
            if slots is None
            else slots // settings.states_a_request(alone=not (full or windows)),
        ),
    )


def _cell(groups: Iterable[KVGroup]) -> int:
    return sum(group.bytes_per_token for group in groups)


def _whole(tokens: int, page: int) -> int:
    return tokens // page * page


def _states(budget: int, groups: list[KVGroup], settings: SglangSettings) -> tuple[int | None, int]:
    """Slots of states, and their bytes with the padding one; None without any."""
    one = sum(group.state_bytes for group in groups)
    if not one:
        return None, 0
    if settings.max_mamba_cache_size is not None:
        slots = settings.max_mamba_cache_size
    elif settings.disable_radix_cache and settings.max_running_requests is not None:
        slots = settings.max_running_requests
    else:
        slots = states_by_ratio(budget, one, settings.mamba_full_memory_ratio)
    if slots <= 0 or (slots + 1) * one >= budget:
        raise InputError(
            "the states of recurrent layers leave no room",
            where="mamba_full_memory_ratio",
            value=f"{slots} states of {one:,} bytes",
            limit=f"{budget:,} bytes for states and KV",
            remedy="raise mem_fraction_static, or take more GPUs or fewer max_running_requests",
        )
    return slots, (slots + 1) * one


def _kept(settings: SglangSettings, windows: list[KVGroup], chunk: int) -> int | None:
    """Tokens of the sliding-window pool where max_running_requests sets its size."""
    requests = settings.max_running_requests
    if not windows or requests is None or not settings.disable_radix_cache or chunk <= 0:
        return None
    overlaps = not settings.disable_overlap_schedule
    return windows_at_once(requests, _widest(windows), settings.page_size, chunk, overlaps=overlaps)


def windows_at_once(
    requests: int,
    window: int,
    page: int,
    chunk: int,
    *,
    overlaps: bool,
    interval: int = SWA_EVICTION_INTERVAL,
) -> int:
    """Tokens of the windows' pool that `requests` requests fill at once.

    Each takes a window, the slots it has not freed yet and two pages. Added is a chunk of a prompt,
    two where steps overlap.
    """
    each = window + interval + 2 * page
    return ceil_div(each * requests + (1 + overlaps) * chunk + page, page) * page


def _widest(windows: list[KVGroup]) -> int:
    return max(group.window_tokens or 0 for group in windows)


def _check_windows(windows: list[KVGroup], tokens: int, page: int) -> None:
    if _widest(windows) + page >= tokens:
        raise InputError(
            "the windows' pool holds no request",
            where="swa_full_tokens_ratio",
            value=f"{tokens:,} tokens",
            limit=f"{_widest(windows) + page:,} tokens of a window and a page",
            remedy="raise swa_full_tokens_ratio or mem_fraction_static",
        )


def _requests(settings: SglangSettings, tokens: int, max_model_len: int, states: int | None) -> int:
    """Most requests that may run at once (SGLang's max_running_requests).

    states: requests that the pool of states can hold; None: the model has no states.
    """
    given = settings.max_running_requests
    if given is None:
        given = min(max(int(tokens / max_model_len * 512), FEWEST_REQUESTS), MOST_REQUESTS)
    most = min(given, tokens // 2)
    if states is not None:
        most = min(most, states)
    if most < 1:
        raise InputError(
            "the pool serves no request",
            where="mem_fraction_static",
            value=f"{tokens:,} tokens" + ("" if states is None else f", states of {states}"),
            remedy="raise mem_fraction_static, or take a larger device",
        )
    return most
