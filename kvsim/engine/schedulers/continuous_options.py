"""The options of continuous batching, by vLLM's names."""

from dataclasses import replace
from typing import Self

from pydantic import Field, model_validator

from kvsim.engine.connectors.connector import NO_CONNECTOR, Connector
from kvsim.engine.limits.adapter_slots import AdapterSlots
from kvsim.engine.limits.encoder_cache import EncoderCache
from kvsim.engine.limits.special import SpecialLimits
from kvsim.engine.policies.policies import Policies
from kvsim.engine.policies.queue import Order
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.draft_rules import check_drafts, most_drafted_seqs
from kvsim.engine.schedulers.knobs import Knobs
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Allocator
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, PS_PER_US
from kvsim.speculation import Speculation
from kvsim.support.parts import CONNECTORS, DRAFTS, SPECIAL, STAGES, ServerParts
from kvsim.support.table import check
from kvsim.vllm.rules import BlockRules, SchedulingRules
from kvsim.vllm.versions import Semantics, VllmVersion, scheduled_as


class Continuous(SchedulerOptions):
    """vLLM's knobs, by its names.

    long_prefill_token_threshold: most tokens of one prompt a step computes, 0 for no such limit.
    scheduler_reserve_full_isl: admit only what fits as a whole now, though chunks take less; not
        given: yes, where the version knows it.
    async_scheduling: schedule a step before the one before it has returned.
    max_loras: LoRA adapters that run at once; waiting requests that need a further one are skipped.
        Not given: as many as [memory] keeps room for. max_cpu_loras: adapters that host memory
        keeps; not given: max_loras.
    max_tokens_per_mm_item: placeholders of the largest image, sound or video that the model takes;
        it raises the next two. max_num_encoder_input_tokens: embeddings that a step may compute;
        encoder_cache_size: that are kept; both as long as max_num_batched_tokens unless given.
    disable_chunked_mm_input: no chunk ends within an item. limit_mm_per_prompt: prompts with more
        items are refused. encoder_us_per_token: time of the encoder for each embedding, before the
        rest of its step. lora_load_ms: time of each copy of an adapter to the device, likewise.
    semantics: the version of vLLM: "vllm-0.33", "vllm-0.27", "vllm-0.22" or "vllm-0.11". 0.27 and
        0.22 keep every block of a window and every state at the end of a chunk; 0.22 keeps no state
        where prompts diverged. 0.11 has no full-sequence check and no watermark, and keeps no
        state. Its prefix cache supports one kind of windows in addition to full attention. 0.11 and
        0.22 return all blocks to the back of the free queue.
    """

    max_num_seqs: int = Field(256, ge=1)
    max_num_batched_tokens: int = Field(2048, ge=1)
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = Field(0, ge=0)
    policy: Order = "fcfs"
    scheduler_reserve_full_isl: bool | None = None
    async_scheduling: bool = False
    max_loras: int | None = Field(None, ge=0)
    max_cpu_loras: int | None = Field(None, ge=1)
    max_tokens_per_mm_item: int = Field(0, ge=0)
    max_num_encoder_input_tokens: int | None = Field(None, ge=1)
    encoder_cache_size: int | None = Field(None, ge=1)
    disable_chunked_mm_input: bool = False
    limit_mm_per_prompt: int | None = Field(None, ge=0)
    encoder_us_per_token: float = Field(0.0, ge=0, le=1e6)
    lora_load_ms: float = Field(0.0, ge=0, le=1e6)
    semantics: Semantics = "vllm-0.33"

    @model_validator(mode="after")
    def _host_keeps_what_runs(self) -> "Continuous":
        if not self._host_keeps(self.max_loras or 1):
            raise ValueError("max_cpu_loras must be at least max_loras")
        return self

    def _host_keeps(self, adapters: int) -> bool:
        """Whether host memory holds at least as many adapters as run at once."""
        return self.max_cpu_loras is None or self.max_cpu_loras >= adapters

    @property
    def serves(self) -> frozenset[str]:
        found = frozenset((STAGES, DRAFTS, CONNECTORS))
        return found | {SPECIAL} if self._version is scheduled_as("vllm-0.33") else found

    @property
    def most_adapters(self) -> int:
        return self.max_loras or 0

    def with_adapters(self, max_loras: int) -> Self:
        if not max_loras or self.max_loras == max_loras:
            return self
        if self.max_loras is not None:
            raise InputError(
                "vLLM has one --max-loras: the pool keeps room for the adapters that run at once",
                where="scheduler.max_loras",
                value=self.max_loras,
                limit=f"memory.max_loras = {max_loras}",
                remedy="leave one of them out, or give both the same number",
            )
        if not self._host_keeps(max_loras):
            raise InputError(
                "max_cpu_loras must be at least max_loras",
                where="scheduler.max_cpu_loras",
                value=self.max_cpu_loras,
                limit=f"memory.max_loras = {max_loras}",
                remedy="raise it, or lower memory.max_loras",
            )
        return self.model_copy(update={"max_loras": max_loras})

    @model_validator(mode="after")
    def _no_full_check_where_there_is_none(self) -> "Continuous":
        if self.scheduler_reserve_full_isl and not self._scheduling.reserves_full_isl:
            raise ValueError(f"{self.semantics} has no scheduler_reserve_full_isl; leave it out")
        return self

    @property
    def _scheduling(self) -> SchedulingRules:
        return self._version.scheduling

    @property
    def _version(self) -> VllmVersion:
        return scheduled_as(self.semantics)

    @property
    def order(self) -> Order:
        return self.policy

    @property
    def depth(self) -> int:
        return 2 if self.async_scheduling else 1

    @property
    def block_rules(self) -> BlockRules:
        return self._version.blocks

    def max_in_flight_tokens(self, depth: int) -> int:
        steps = depth if self.block_rules.waits_for_return else 1
        return steps * self.max_num_batched_tokens

    @property
    def engine(self) -> str:
        return "vllm"

    @property
    def engine_version(self) -> str:
        return self._version.name

    def drafting(self, speculation: Speculation) -> Speculation:
        return speculation if self._scheduling.looks_ahead else speculation.without_lookahead()

    def check_looks_ahead(self) -> None:
        if not self._scheduling.looks_ahead:
            raise InputError(
                f"{self.semantics} knows no other hashes: hits lose their last block in any case",
                where="speculative_config.disable_lookahead_block_hashes",
                value=True,
                remedy="leave it out",
            )

    def make(
        self, allocator: Allocator, max_model_len: int, policies: Policies
    ) -> ContinuousScheduler:
        return self._limited(self._parts(allocator, max_model_len, policies))

    def holding(
        self,
        allocator: Allocator,
        max_model_len: int,
        *,
        connector: Connector | None = None,
        verifier: Verifier | None = None,
        stages: int = 1,
    ) -> ContinuousScheduler:
        drafts, connects = verifier is not None, connector is not None
        self._check_parts(stages=stages, drafts=drafts, connector=connects)
        parts = self._parts(allocator, max_model_len, self._policies(allocator))
        if verifier is not None:
            check_drafts(self, verifier)
            most = most_drafted_seqs(self.max_num_seqs, self.max_num_batched_tokens, verifier)
            knobs = replace(parts.knobs, max_num_seqs=most)
            parts = parts._replace(knobs=knobs, drafter=verifier)
        return self._limited(parts._replace(connector=connector or NO_CONNECTOR, stages=stages))

    def _limited(self, parts: ContinuousParts) -> ContinuousScheduler:
        """A scheduler with its limits on multimodal items and adapters."""
        made = ContinuousScheduler(parts)
        loras, load_ps = self.most_adapters, round(self.lora_load_ms * PS_PER_MS)
        slots = AdapterSlots(loras, self.max_cpu_loras or loras, load_ps)
        made.special_limits = SpecialLimits(self._encoder_cache(parts.drafter), slots)
        return made

    def _encoder_cache(self, drafter: Verifier) -> EncoderCache:
        tokens, largest = self.max_num_batched_tokens, self.max_tokens_per_mm_item
        return EncoderCache(
            max(self.max_num_encoder_input_tokens or tokens, largest),
            max(self.encoder_cache_size or tokens, largest),
            whole_items=self.disable_chunked_mm_input,
            overlaps=self.async_scheduling,
            ahead_tokens=drafter.prefill_lookahead,
            most_items=self.limit_mm_per_prompt,
            token_ps=round(self.encoder_us_per_token * PS_PER_US),
        )

    def _check_parts(self, *, stages: int, drafts: bool, connector: bool) -> None:
        """Raise InputError if this scheduler does not run with the other parts."""
        check(
            ServerParts(
                stages=stages,
                drafts=drafts,
                connector=connector,
                ahead=self.async_scheduling,
                swaps=self.preemption_mode == "swap",
                semantics="" if SPECIAL in self.serves else self.semantics,
            )
        )

    def _parts(
        self, allocator: Allocator, max_model_len: int, policies: Policies
    ) -> ContinuousParts:
        """The parts that these options determine, without connector, drafts and stages."""
        rules, knobs = self._scheduling, self._knobs(allocator)
        return ContinuousParts(
            allocator, max_model_len, policies, rules, knobs, ahead=self.async_scheduling
        )

    def _knobs(self, allocator: Allocator) -> Knobs:
        if not self.block_rules.cuts_at_blocks:
            self._check_whole_blocks(allocator.chunk_tokens)
        asked = self.scheduler_reserve_full_isl is not False
        return Knobs(
            self.max_num_seqs,
            self.max_num_batched_tokens,
            enable_chunked_prefill=self.enable_chunked_prefill,
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            by_priority=self.policy == "priority",
            fits_whole=asked and self._scheduling.reserves_full_isl,
        )

    def _check_whole_blocks(self, block: int) -> None:
        """Raise InputError if no chunk could be a whole block of recurrent states."""
        for key in ("max_num_batched_tokens", "long_prefill_token_threshold"):
            value = getattr(self, key)
            if 0 < value < block:
                raise InputError(
                    f"{self.semantics} computes prompts by whole blocks of recurrent states, and "
                    "does not start with less",
                    where=f"scheduler.{key}",
                    value=value,
                    limit=f"at least {block}",
                    remedy="raise it, or allocator.enable_prefix_caching = false",
                )
