"""The options of llama-server's scheduler, by its flags."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import model_validator

from kvsim.engine.policies.policies import Policies
from kvsim.engine.policies.preemption import Recompute
from kvsim.engine.policies.queue import FcfsQueue
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.llama_server.flags import SlotFlags
from kvsim.engine.schedulers.llama_server.host_cache import HostCache
from kvsim.engine.schedulers.llama_server.scheduler import LlamaServerScheduler
from kvsim.engine.schedulers.llama_server.settings import SlotSettings
from kvsim.engine.schedulers.llama_server.wiring import Wiring
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.memory.allocator import Allocator
from kvsim.memory.cells.allocator import CellsAllocator
from kvsim.memory.cells.older import OlderCache
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import MIB

# Flags of the server that other tables have.
ELSEWHERE = {
    "n_ctx": "the pool, kv_cache_tokens of [memory]",
    "ctx_size": "the pool, kv_cache_tokens of [memory]",
    "type_k": "kv_cache_dtype of [model]",
    "type_v": "kv_cache_dtype of [model]",
    "swa_full": 'swa_full of [[allocator]] kind = "cells"',
    "n_ubatch": 'n_ubatch of [[allocator]] kind = "cells"',
}


class LlamaServer(SlotFlags, SchedulerOptions):
    """llama-server 0c1e57098 over `kind = "cells"`. Nothing is preempted. If a batch finds no
    room, idle slots are emptied, then less of the batch is computed at once. At last every running
    request ends with an error.

    preemption_mode and victim have one value here.
    """

    @model_validator(mode="before")
    @classmethod
    def _flags_elsewhere(cls, table: Any) -> Any:
        for flag, place in ELSEWHERE.items():
            if isinstance(table, Mapping) and flag in table:
                raise ValueError(f"{flag} of llama-server is {place} here")
        return table

    @model_validator(mode="after")
    def _nothing_is_preempted(self) -> Self:
        if self.preemption_mode != "recompute":
            raise ValueError("llama-server never preempts: preemption_mode can only be recompute")
        if self.victim is not None:
            raise ValueError("llama-server never preempts: leave victim out")
        return self

    def max_in_flight_tokens(self, depth: int) -> int | None:
        return self.n_batch

    def build(self, allocator: Allocator, max_model_len: int) -> LlamaServerScheduler:
        if not isinstance(allocator, CellsAllocator) or isinstance(allocator.cells, OlderCache):
            raise InputError(
                "llama-server keeps its slots in cells, and takes holes",
                where="allocator.kind",
                remedy='[[allocator]] kind = "cells" (semantics = "autumn-2026")',
            )
        if allocator.fixed:
            raise InputError(
                "the buffers of cells are those of llama-server's slots",
                where="allocator.kv_unified, allocator.n_seq_max",
                remedy="leave both out, and set n_parallel and kv_unified of [scheduler]",
            )
        allocator.serve(self.num_slots, unified=self.unified)
        policies = Policies(FcfsQueue(), Latest(), Recompute())
        scheduler = LlamaServerScheduler(
            allocator, max_model_len, policies, self._wiring(allocator)
        )
        allocator.driver = scheduler.one_more
        return scheduler

    def _wiring(self, allocator: CellsAllocator) -> Wiring:
        plan = allocator.plan
        context = plan.cells * plan.buffers
        n_batch = min(self.n_batch, context)
        shifts = not plan.window or plan.window_cells == plan.cells
        self._check_used(shifts=shifts, windowed=plan.window > 0)
        settings = SlotSettings(
            plan.cells,
            n_batch,
            min(n_batch, plan.n_ubatch),
            self.unified,
            self.slot_prompt_similarity,
            self.context_shift and shifts,
            self.cache_reuse if shifts else 0,
            self.cache_idle_slots,
            self.ctx_checkpoints if plan.window else 0,
            plan.window,
        )
        host = None
        if self.cache_ram:
            limit = self.cache_ram * MIB if self.cache_ram > 0 else None
            host = HostCache(limit, context)
        return Wiring(self.num_slots, settings, host)

    def _check_used(self, *, shifts: bool, windowed: bool) -> None:
        """Raise InputError for a flag without effect.

        shifts: all layers have as many cells, so positions can shift. windowed: some layers drop
        tokens outside their window.
        """
        idle = {}
        if not windowed:
            idle["ctx_checkpoints"] = "only windows that forget tokens need checkpoints"
        if not shifts:
            idle["context_shift"] = idle["cache_reuse"] = (
                "no position shifts where windows forget tokens (swa_full = false)"
            )
        if not self.cache_ram:
            idle["cache_idle_slots"] = "cache_ram = 0 has no room to save a slot in"
        for name, because in idle.items():
            self.refuse_idle("scheduler", [name], because)
