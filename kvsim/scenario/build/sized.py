"""A scenario with its model, device and pool, from which each of its replicas is built."""

from collections.abc import Sequence
from dataclasses import replace

from kvsim.capacity.drafter import Drafter
from kvsim.capacity.local_attention import gives_chunks_back
from kvsim.capacity.stage import model_of, stages
from kvsim.engine.replica import ReplicaSpec
from kvsim.layout import KVLayout
from kvsim.memory import ALLOCATORS
from kvsim.memory.options import AllocatorOptions
from kvsim.model import Model
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.scenario.build.context_parallel import over_gpus, shared_layout
from kvsim.scenario.build.drafter import drafter_of
from kvsim.scenario.build.pool import pool_of
from kvsim.scenario.build.stages import staged_plan
from kvsim.scenario.build.step_time import step_time_of
from kvsim.vllm.grouping import Grouping
from kvsim.vllm.rules import BlockRules


def place_of(label: str, labels: Sequence[str]) -> int:
    """Index of the allocator that `--allocator` names by its label; InputError for an unknown
    label.
    """
    if label not in labels:
        raise InputError(
            "no such allocator in the scenario",
            where="--allocator",
            value=label,
            remedy=f"it has {', '.join(labels)}",
        )
    return labels.index(label)


class SizedScenario:
    """A scenario with a sized pool, the same for every allocator.

    held: the model, or in a pipeline the layers of the stage that limits the pool. layout: the KV
    of `held` on one GPU. devices: device of each pipeline stage; device: of the stage that limits
    the pool. stages: the pipeline stages. Raises InputError if the pool or a layer is impossible.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        options = scenario.model
        self.model = options.build(scenario.folder)
        self.devices = scenario.device.on_stages(options.pipeline_parallel_size)
        self.max_model_len = options.model_len(self.model)
        self.drafter = drafter_of(scenario.speculative_config, scenario.folder)
        found = pool_of(scenario, self.model, self.devices, self.drafter)
        self.pool, self.stages, self._stage = found.pool, found.stages, found.stage
        self.device = self.devices[found.stage]
        self.held = self.model
        if options.pipeline_parallel_size > 1:
            every = stages(self.model.layers, options.pipeline_parallel_size, options.stage_layers)
            self.held = model_of(self.model, every[found.stage])
        self.layout = shared_layout(scenario, options.layout(self.held))
        self.step_time = step_time_of(
            scenario, self.model, self.devices, self.layout, self.pool, self.drafter
        )
        if self.drafter is not None:
            self.layout = shared_layout(scenario, self._drafted_layout(self.drafter))
        self.labels = scenario.labels()

    def chosen(self, label: str | None) -> tuple[AllocatorOptions, str]:
        """The allocator with this label (None: the first), and its label; InputError for an unknown
        label.
        """
        label = self.labels[0] if label is None else label
        return self.scenario.allocator[place_of(label, self.labels)], label

    def replica_spec(self, options: AllocatorOptions) -> ReplicaSpec:
        """The specification of a replica with one allocator."""
        drafts, scheduler = self.scenario.speculative_config, self.scenario.scheduler_of(options)
        options = over_gpus(options, self.scenario.model.decode_context_parallel_size)
        scheduler = scheduler.with_adapters(self.scenario.memory.max_loras)
        if drafts is not None and drafts.disable_lookahead_block_hashes:
            scheduler.check_looks_ahead()
        spec = ReplicaSpec(
            options,
            scheduler,
            capacity_bytes=self.pool.capacity_bytes,
            layout=self._layout_under(ALLOCATORS.name_of(options)),
            plan=self._plan(options, self._stage, scheduler.block_rules),
            states=self.pool.states,
            window_tokens=self.pool.window_tokens,
            pool_tokens=self._counted_tokens,
            max_model_len=self._context_under(ALLOCATORS.name_of(options)),
            copy_bytes_per_s=self.device.bandwidth_bytes_per_s,
            host_bytes_per_s=self.device.host_bytes_per_s,
            max_steps=self.scenario.max_steps,
            speculation=None if drafts is None else drafts.speculation,
            acceptance=None if drafts is None else drafts.acceptance(self.scenario.seed),
            stages=self.scenario.model.pipeline_parallel_size,
        )
        if not self.scenario.tier:
            return spec
        from kvsim.scenario.build.tiers import with_tiers  # few scenarios have some

        return with_tiers(spec, self.scenario, self.devices, self._parts(spec))

    def _parts(self, spec: ReplicaSpec) -> tuple[ReplicaSpec, ...]:
        """The specification of the replica for each stage of its pipeline."""
        options = self.scenario.model
        count = options.pipeline_parallel_size
        if count == 1:
            return (spec,)
        parts = []
        for place, stage in enumerate(stages(self.model.layers, count, options.stage_layers)):
            layout = options.layout(model_of(self.model, stage), by_chunk=self._by_chunk)
            layout = shared_layout(self.scenario, layout)
            plan = self._plan(spec.allocator, place, spec.scheduler.block_rules)
            parts.append(replace(spec, layout=layout, plan=plan))
        return tuple(parts)

    def _plan(self, options: AllocatorOptions, stage: int, rules: BlockRules) -> Grouping | None:
        """The layer groups and blocks of a stage; see `staged_plan`."""
        return staged_plan(
            options,
            self.scenario.model,
            self.model,
            stage,
            rules,
            by_chunk=self._by_chunk,
            drafter=self.drafter,
        )

    @property
    def _by_chunk(self) -> bool:
        """Whether vLLM's block tables free chunks of local attention."""
        drafts = self.scenario.speculative_config
        return self.scenario.model.decode_context_parallel_size == 1 and gives_chunks_back(
            frees_chunks=self.scenario.memory.version.sizing.frees_chunks,
            speculation=None if drafts is None else drafts.speculation,
        )

    @property
    def _counted_tokens(self) -> int | None:
        """Tokens of the pool that SGLang counts for layers without KV bytes, if they are given."""
        tokens = self.scenario.memory.kv_cache_tokens
        return None if self.layout.bytes_per_token else tokens

    def _context_under(self, allocator_kind: str) -> int:
        """The longest sequence in tokens that the engine of this allocator kind accepts."""
        if allocator_kind != "radix":
            return self.max_model_len
        from kvsim.capacity.sglang.sizing import context_of  # of radix alone

        return context_of(self.model, self.scenario.model)

    def _layout_under(self, allocator_kind: str) -> KVLayout:
        """The layers as an allocator of this kind groups them: vLLM's block tables free chunks of
        local attention in some versions.
        """
        if allocator_kind != "radix":
            by_chunk = allocator_kind == "paged" and self._by_chunk
            return self._in_chunks(self.held) if by_chunk else self.layout
        from kvsim.capacity.sglang.sizing import cached_layout, with_states  # as above

        return cached_layout(self.model.kind, self._in_chunks(with_states(self.held)))

    def _in_chunks(self, held: Model) -> KVLayout:
        """The layers of `held`, with chunks of local attention as groups of their own."""
        if self.drafter is not None:
            return self._drafted_layout(self.drafter, by_chunk=True)
        return self.scenario.model.layout(held, by_chunk=True)

    def _drafted_layout(self, drafter: Drafter, *, by_chunk: bool = False) -> KVLayout:
        """The layers including those of the drafter, which is on the last pipeline stage."""
        options = self.scenario.model
        last = self._stage == options.pipeline_parallel_size - 1
        return drafter.layout(self.model, options, self.held, drafts=last, by_chunk=by_chunk)
