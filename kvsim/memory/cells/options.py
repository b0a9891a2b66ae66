"""The options of llama.cpp's KV cells, and the allocator that they build."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from kvsim.memory.cells.allocator import CellsAllocator
from kvsim.memory.cells.plan import CellPlan, plan_cells
from kvsim.memory.options import WASTE, AllocatorOptions, MemorySpec, Removal

MOST_SEQUENCES = 256
AUTO_SLOTS = 4


class Cells(AllocatorOptions):
    """llama.cpp's KV cache; the pool is as many cells as fit, in multiples of 256 a buffer.

    kv_unified: one buffer for all sequences, or (false) one each. n_seq_max: sequences that hold
        cells at once; not given: 256 in one buffer, else 4. Under `llama-server` both are its
        slots', and are not given here.
    n_ubatch: most tokens that are placed at once; a window cache has room for as many in addition.
    swa_full: layers with a window keep every token.
    semantics: "autumn-2026" (0c1e57098), or "march-2025" (7841fc723): tokens that are placed at
        once need neighbouring cells. defrag_thold: of "march-2025": the share of holes among the
        cells that attention reads from which on cells are moved together, 0: they never are; 0.1
        unless given.
    """

    kv_unified: bool | None = None
    n_seq_max: int | None = Field(None, ge=1, le=MOST_SEQUENCES)
    n_ubatch: int = Field(512, ge=1)
    swa_full: bool = False
    semantics: Literal["autumn-2026", "march-2025"] = "autumn-2026"
    defrag_thold: float | None = Field(None, ge=0, le=1)

    @model_validator(mode="after")
    def _what_each_version_has(self) -> "Cells":
        older = self.semantics == "march-2025"
        if older and (self.kv_unified is False or self.swa_full):
            raise ValueError("march-2025 has one buffer, which keeps every token")
        if not older and self.defrag_thold is not None:
            raise ValueError('defrag_thold changes nothing unless semantics = "march-2025"')
        return self

    def plan(self, memory: MemorySpec, num_sequences: int, *, unified: bool) -> CellPlan:
        """The largest buffers for `num_sequences` sequences that fit in the pool."""
        older = self.semantics == "march-2025"
        return plan_cells(
            memory.capacity_bytes,
            memory.layout,
            num_sequences,
            self.n_ubatch,
            unified=unified,
            swa_full=self.swa_full or older,
            defrag_thold=(0.1 if self.defrag_thold is None else self.defrag_thold)
            if older
            else None,
        )

    def removals(self) -> Iterator[Removal]:
        """The cumulative options that remove one class of waste after another.

        One buffer for all sequences removes the reserved cells of each. The version that takes any
        cells removes the cost of neighbouring ones.
        """
        if self.kv_unified is False:
            shared = self.model_copy(update={"kv_unified": True, "n_seq_max": None})
            yield Removal(("overprovisioned", "reserved"), shared)
            yield Removal(("external", "transient", "rounding"), None)
            return
        yield Removal(WASTE, None)

    def build(self, memory: MemorySpec) -> CellsAllocator:
        if all(group.kind != "sliding" for group in memory.layout.groups):
            self._check_without_windows()
        unified = self.kv_unified is not False
        num = self.n_seq_max or (MOST_SEQUENCES if unified else AUTO_SLOTS)

        def planned(num_slots: int, *, shared: bool) -> CellPlan:
            return self.plan(memory, num_slots, unified=shared)

        fixed = self.kv_unified is not None or self.n_seq_max is not None
        return CellsAllocator(memory, planned(num, shared=unified), planned, fixed=fixed)

    def _check_without_windows(self) -> None:
        """InputError for a key without effect: one that sizes the window cache of a model without
        windows, or that concerns neighbouring cells.
        """
        names = ["swa_full"] if self.semantics == "march-2025" else ["swa_full", "n_ubatch"]
        self.refuse_idle("allocator", names, "the model has no sliding windows")
