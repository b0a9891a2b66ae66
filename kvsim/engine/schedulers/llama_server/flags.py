"""llama-server's flags that its slots and its cache depend on, and the settings that follow."""

from pydantic import Field

from kvsim.engine.schedulers.llama_server.host_cache import HostCache
from kvsim.engine.schedulers.llama_server.settings import SlotSettings
from kvsim.llamacpp.sizes import CacheSizes, Context, ContextSettings
from kvsim.llamacpp.types import CacheType
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import MIB

AUTO_SLOTS = 4
LARGEST_CONTEXT = 1 << 24  # tokens
MOST_SLOTS = 256


class SlotFlags(Options):
    """n_parallel: slots (`-np`); not given: 4 that share one buffer.
    kv_unified: slots share one buffer (`-kvu`); not given: only where n_parallel is not.
    n_batch: most tokens of a batch (`-b`).
    slot_prompt_similarity: a slot is chosen by what it holds where that is more than this share of
        the prompt (`-sps`).
    context_shift: drop the older half of what a full slot need not keep.
    cache_reuse: the fewest consecutive tokens that are moved to serve a prompt, 0: none are.
    cache_ram: MiB of host memory for prompts, 0: none, -1: as many tokens as the context.
    cache_idle_slots: save idle slots there when a request starts, and empty them if they share a
        buffer.
    ctx_checkpoints: most of a slot, of models with windows.
    """

    n_parallel: int | None = Field(None, ge=1, le=MOST_SLOTS)
    kv_unified: bool | None = None
    n_batch: int = Field(2048, ge=1)
    slot_prompt_similarity: float = Field(0.1, ge=0, le=1)
    context_shift: bool = False
    cache_reuse: int = Field(0, ge=0)
    cache_ram: int = Field(8192, ge=-1)
    cache_idle_slots: bool = True
    ctx_checkpoints: int = Field(32, ge=0)

    @property
    def num_slots(self) -> int:
        """Number of slots."""
        return self.n_parallel or AUTO_SLOTS

    @property
    def unified(self) -> bool:
        """Whether all slots share one buffer."""
        return self.n_parallel is None if self.kv_unified is None else self.kv_unified


class ServerFlags(SlotFlags):
    """Flags of the slots and of the context. n_ctx: tokens in all (`-c`), 0: as many as the model
    was trained with. n_ubatch: most tokens that are computed at once (`-ub`). type_k, type_v: data
    types of K and V. swa_full: window layers store every token too.
    """

    n_ctx: int = Field(0, ge=0, le=LARGEST_CONTEXT)
    n_ubatch: int = Field(512, ge=1)
    type_k: CacheType = "f16"
    type_v: CacheType = "f16"
    swa_full: bool = False

    def context_settings(self) -> ContextSettings:
        """Settings of the llama.cpp context that the server creates."""
        return ContextSettings(
            self.n_ctx,
            self.num_slots,
            self.n_batch,
            self.n_ubatch,
            self.unified,
            self.swa_full,
            self.type_k,
            self.type_v,
        )

    def host_cache(self, context: Context) -> HostCache | None:
        """The host prompt cache; None without one."""
        if not self.cache_ram:
            return None
        limit = self.cache_ram * MIB if self.cache_ram > 0 else None
        return HostCache(limit, context.n_ctx)

    def server_settings(self, context: Context, sizes: CacheSizes) -> SlotSettings:
        """Slot settings that follow from the flags and the caches' sizes.

        Positions cannot shift if window layers have fewer cells than the others.
        """
        windowed = sizes.windowed
        shifts = windowed is None or windowed.cells == sizes.base.cells
        window = 0 if windowed is None or self.swa_full else windowed.window
        return SlotSettings(
            context.n_ctx_seq,
            context.n_batch,
            context.n_ubatch,
            self.unified,
            self.slot_prompt_similarity,
            self.context_shift and shifts,
            self.cache_reuse if shifts else 0,
            self.cache_idle_slots,
            self.ctx_checkpoints if window else 0,
            window,
        )
