"""The KV pool (cells) of a llama.cpp server, from the context length that its sources give."""

from kvsim.layout import KVLayout
from kvsim.llamacpp.sizes import ContextSettings, context_of, window_cells
from kvsim.plumbing.units import MIB
from kvsim.readers.description import ServerSettings

AUTO_SLOTS = 4
_ROUNDED_BYTES = 0.02 * MIB  # of two lines of the log


def cells_bytes(
    settings: ServerSettings, layout: KVLayout, trained_tokens: int, notes: list[str]
) -> int:
    """Bytes of all KV cells. trained_tokens is the model's context length, used if no source gives
    one.
    """
    known = settings.reported()
    slots = settings.n_parallel or AUTO_SLOTS
    unified = settings.kv_unified
    unified = settings.n_parallel is None if unified is None else unified
    each = settings.n_ctx_seq or trained_tokens
    n_ctx = settings.n_ctx or each * (1 if unified else slots)
    if settings.n_ctx is None and settings.n_ctx_seq is None:
        notes.append(
            f"no source names the context: it is the {n_ctx:,} tokens of the model's training. The "
            "server's --fit may have made it shorter, which its log says"
        )
    if settings.kv_unified is None and settings.n_parallel is not None:
        shared = "share one buffer" if unified else "have a buffer each"
        notes.append(
            f"no source says whether the {slots} slots share one buffer: here they {shared}. The "
            "command line or the log would say it"
        )
    asked = ContextSettings(
        n_ctx,
        slots,
        known.get("n_batch", 2048),
        known.get("n_ubatch", 512),
        kv_unified=unified,
        swa_full=known.get("swa_full", False),
    )
    context = context_of(asked)
    cells = 0
    for group in layout.groups:
        window = group.window_tokens
        kept = context.n_ctx_seq if window is None else window_cells(window, asked, context)
        cells += kept * context.buffers * group.bytes_per_token
    logged = settings.kv_cache_bytes
    if logged is not None and abs(logged - cells) > _ROUNDED_BYTES:
        notes.append(
            f"the log says {logged:,} bytes of KV, which is taken; this context of this model "
            f"would be {cells:,}"
        )
        return logged
    return cells
