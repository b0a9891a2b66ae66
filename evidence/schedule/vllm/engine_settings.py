"""Settings of a recorded vLLM engine: KV cache groups, speculative decoding and limits."""

from math import gcd, lcm
from typing import Any, Literal

from pydantic import Field, model_validator

from evidence.schedule.case import MOST_TOKENS
from kvsim.engine.policies.queue import Order
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers.continuous_options import Continuous
from kvsim.engine.speculation.acceptance import RecordedAcceptance
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.paged.options import Paged, RetentionTokens
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import group_layers
from kvsim.vllm.versions import Semantics, scheduled_as


class VllmGroup(Options):
    """A KV cache group of the recorded engine. groups: number of block tables for layers of this
    kind. window_tokens: sliding window. chunk_tokens: chunk of chunked local attention. block_size:
    as the engine planned it; the other keys are further results of that plan.
    """

    kind: Literal["full", "sliding", "chunked", "recurrent"]
    groups: int = Field(1, ge=1, le=1000)
    window_tokens: int | None = Field(None, ge=1)
    chunk_tokens: int | None = Field(None, ge=1)
    block_size: int | None = Field(None, ge=1, le=MOST_TOKENS)
    speculative_blocks: int = Field(0, ge=0)
    checkpoint_blocks: int = Field(0, ge=0)
    checkpoint_alignment: int | None = Field(None, ge=1, le=MOST_TOKENS)
    extra_retained_tokens: int = Field(0, ge=0)
    drops: bool = False

    @model_validator(mode="after")
    def _a_window_slides(self) -> "VllmGroup":
        if (self.kind == "sliding") != (self.window_tokens is not None):
            raise ValueError("a sliding group, and no other, has window_tokens")
        if (self.kind == "chunked") != (self.chunk_tokens is not None):
            raise ValueError("a chunked group, and no other, has chunk_tokens")
        return self


class VllmSpeculation(Options):
    """How the engine drafted: method and number of tokens. The other keys follow from these and the
    version, and are compared with kvsim's.
    """

    method: str
    tokens: int = Field(ge=1, le=1000)
    lookahead_slots: int
    hash_lookahead: int
    prefill_lookahead: int
    drop_last_block: bool
    draft_input_slots: int

    def speculation(self, semantics: Semantics) -> Speculation:
        """The settings as kvsim's Speculation; InputError if an engine would not run with these
        keys.
        """
        modules = max(1, self.prefill_lookahead)
        hashes_ahead = not self.drop_last_block
        found = Speculation(self.method, self.tokens, hashes_ahead, modules)
        found.check()
        if not scheduled_as(semantics).scheduling.looks_ahead:
            found = found.without_lookahead()
        for key, follows in (
            ("lookahead_slots", found.lookahead_slots),
            ("hash_lookahead", found.hash_lookahead),
            ("prefill_lookahead", found.prefill_lookahead),
            ("draft_input_slots", found.draft_input_slots),
        ):
            if getattr(self, key) != follows:
                raise InputError(
                    "not what this method does",
                    where=f"engine.speculative.{key}",
                    value=getattr(self, key),
                    limit=follows,
                )
        return found


def _over_gpus(engine: Any) -> Any:
    """Engine settings in which block_size covers the tokens of all decode-context-parallel GPUs."""
    num = engine.get("decode_context_parallel_size", 1) if isinstance(engine, dict) else 1
    if not isinstance(num, int) or num == 1:
        return engine

    def scaled(table: Any) -> Any:
        size = table.get("block_size") if isinstance(table, dict) else None
        return {**table, "block_size": size * num} if isinstance(size, int) else table

    groups = engine.get("kv_groups")
    if not isinstance(groups, list | tuple):
        return engine
    return {**scaled(engine), "kv_groups": [scaled(group) for group in groups]}


class VllmEngine(Options):
    """Settings of the recorded engine. kv_groups: its KV cache groups, in its order.

    Keys of an engine that planned its groups itself, as served: prefix_cache_retention_interval
    (None: dense), scheduler_block_size, prefix_match_unit and hit_alignment in tokens,
    max_in_flight_tokens, mamba_cache_mode, speculative. max_num_encoder_input_tokens,
    encoder_cache_size: for multimodal models. max_loras: for LoRA. pipeline_parallel_size: number
    of stages; each stage takes the cost of a step in the case. data_parallel_size: number of ranks
    that compute each forward together. dp_sync_interval: iterations between two agreements of these
    ranks. decode_context_parallel_size: number of GPUs that share the tokens of a sequence;
    block_size then counts the tokens of a block on all of them.
    """

    num_gpu_blocks: int = Field(ge=2, le=MOST_TOKENS)
    block_size: int = Field(ge=1, le=MOST_TOKENS)
    max_num_seqs: int = Field(ge=1)
    max_num_batched_tokens: int = Field(ge=1)
    max_model_len: int = Field(ge=2, le=MOST_TOKENS)
    chunked_prefill: bool = True
    prefix_caching: bool = True
    long_prefill_token_threshold: int = Field(0, ge=0)
    policy: Order = "fcfs"
    async_scheduling: bool = False
    pipeline_parallel_size: int = Field(1, ge=1, le=64)
    data_parallel_size: int = Field(1, ge=1, le=64)
    dp_sync_interval: int = Field(16, ge=1)
    decode_context_parallel_size: int = Field(1, ge=1)
    reserve_full_isl: bool = True
    watermark: float = Field(0.0, ge=0.0, lt=1.0)
    semantics: Semantics = "vllm-0.33"
    kv_groups: tuple[VllmGroup, ...] = Field((VllmGroup(kind="full"),), min_length=1)
    prefix_cache_retention_interval: RetentionTokens | None = None
    scheduler_block_size: int | None = Field(None, ge=1)
    prefix_match_unit: int | None = Field(None, ge=1, le=MOST_TOKENS)
    hit_alignment: int | None = Field(None, ge=1)
    max_in_flight_tokens: int | None = Field(None, ge=1)
    mamba_cache_mode: Literal["align", "none"] | None = None
    speculative: VllmSpeculation | None = None
    max_num_encoder_input_tokens: int | None = Field(None, ge=1)
    encoder_cache_size: int | None = Field(None, ge=1)
    disable_chunked_mm_input: bool = False
    max_loras: int = Field(0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _blocks_of_all_gpus(cls, engine: Any) -> Any:
        return _over_gpus(engine)

    @property
    def as_served(self) -> bool:
        """Whether the engine planned its KV cache groups itself; its rows then count blocks per
        group.
        """
        return self.max_in_flight_tokens is not None

    @model_validator(mode="after")
    def _rarest_kind_in_one_table(self) -> "VllmEngine":
        if min(group.groups for group in self.kv_groups) > 1:
            raise ValueError("one kind of kv_groups must have groups = 1: the rarest layers")
        return self

    @model_validator(mode="after")
    def _blocks_share_pages(self) -> "VllmEngine":
        sizes = [group.block_size or self.block_size for group in self._attending]
        if sizes and (min(sizes) != self.block_size or any(s % self.block_size for s in sizes)):
            raise ValueError(
                "a block of kv_groups holds block_size tokens or a multiple, in one group at least "
                "as many"
            )
        return self

    @property
    def _attending(self) -> list[VllmGroup]:
        return [group for group in self.kv_groups if group.kind != "recurrent"]

    def layout(self) -> KVLayout:
        """One layer a block table, so that a block has the same bytes in any group: as few as slots
        can share evenly in each.
        """
        page, state = self._block_bytes, 1 if self._attending else self._block_bytes
        return KVLayout(
            tuple(
                KVGroup(
                    "full" if group.kind == "chunked" else group.kind,
                    group.groups,
                    0
                    if group.kind == "recurrent"
                    else group.groups * (page // (group.block_size or self.block_size)),
                    group.window_tokens,
                    group.groups * state if group.kind == "recurrent" else 0,
                    group.groups if group.drops else 0,
                    group.chunk_tokens,
                )
                for group in self.kv_groups
            )
        )

    @property
    def _block_bytes(self) -> int:
        sizes = (group.block_size or self.block_size for group in self._attending)
        return lcm(self.block_size, *sizes)

    @property
    def _match_unit(self) -> int | None:
        """Tokens per hash key if several groups are compared; None if the block sizes decide it."""
        sizes = [group.block_size or self.block_size for group in self.kv_groups]
        several = sum(group.groups for group in self.kv_groups) > 1
        if not (several and self.prefix_caching) or self.prefix_match_unit == gcd(*sizes):
            return None
        return self.prefix_match_unit

    def replica_spec(self, acceptance: RecordedAcceptance) -> ReplicaSpec:
        """The engine with these settings, one step at a time."""
        knows_full_isl = scheduled_as(self.semantics).scheduling.reserves_full_isl
        layout = self.layout()
        interval = self.prefix_cache_retention_interval
        exporting = [group for group in self.kv_groups if group.checkpoint_blocks]
        alignment = exporting[0].checkpoint_alignment if exporting else None
        return ReplicaSpec(
            Paged(
                block_size=self.block_size,
                enable_prefix_caching=self.prefix_caching,
                watermark=self.watermark,
                prefix_cache_retention_interval="none" if interval is None else interval,
                prefill_checkpoint_alignment=alignment,
                prefix_match_unit=self._match_unit,
            ),
            Continuous(
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
                enable_chunked_prefill=self.chunked_prefill,
                long_prefill_token_threshold=self.long_prefill_token_threshold,
                policy=self.policy,
                scheduler_reserve_full_isl=self.reserve_full_isl and knows_full_isl,
                async_scheduling=self.async_scheduling,
                semantics=self.semantics,
                max_num_encoder_input_tokens=self.max_num_encoder_input_tokens,
                encoder_cache_size=self.encoder_cache_size,
                disable_chunked_mm_input=self.disable_chunked_mm_input,
                max_loras=self.max_loras,
            ),
            capacity_bytes=self.num_gpu_blocks * self._block_bytes,
            layout=layout,
            max_model_len=self.max_model_len,
            copy_bytes_per_s=1,
            host_bytes_per_s=1,
            max_steps=1,
            speculation=self.speculative.speculation(self.semantics) if self.speculative else None,
            acceptance=acceptance,
            plan=group_layers(layout, self.block_size),
            stages=self.pipeline_parallel_size,
        )
