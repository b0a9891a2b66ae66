"""The versions of vLLM: one constant each, made of rules for blocks, for scheduling and for sizing.

Blocks and scheduling are read off the wheels 0.33.0, 0.27.1, 0.22.0 and 0.11.2 and proved by
recorded schedules. For 0.22 tables that users reported count too, for V0 the artifact of Kwon et
al., SOSP 2023. The versions between have the newest ones. Sizing is read off the wheels 0.10.1.1 to
0.33.0 (config/cache.py, envs.py, engine/arg_utils.py, v1/worker/gpu_worker.py,
v1/sample/ops/topk_topp_sampler.py, v1/core/kv_cache_utils.py), and for V0 off its logs. The bytes a
logit are those of the tensors alive at the sampler's peak in a profiling run. The memory outside
torch is fitted (`kvsim.capacity.estimate`).
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.vllm.rules import BlockRules, SchedulingRules, SizingRules

# Those whose schedules are recorded, as `scheduler.semantics` names them.
Semantics = Literal["vllm-0.33", "vllm-0.27", "vllm-0.22", "vllm-0.11"]
_NEWEST_BLOCKS, _NEWEST_SCHEDULING = BlockRules("vllm-0.33"), SchedulingRules()
_OLDER_BLOCKS = replace(_NEWEST_BLOCKS, caches_states=False)
_REPEATED_BLOCKS = replace(_OLDER_BLOCKS, packing="repeats")


@dataclass(frozen=True, slots=True)
class VllmVersion:
    """The rules of the releases from `name` on, until the next version's; name: such as "0.27"."""

    name: str
    sizing: SizingRules
    blocks: BlockRules = _NEWEST_BLOCKS
    scheduling: SchedulingRules = _NEWEST_SCHEDULING

    @property
    def since(self) -> tuple[int, int]:
        """Major and minor of the first release."""
        return _release(self.name)


V0 = VllmVersion(
    "V0",
    SizingRules(profiles_whole_length=True, caches_prefixes=False, flashinfer_samples=None),
    BlockRules(
        "vllm-v0",
        null_blocks=0,
        default_watermark=0.01,
        watermark_when_idle=True,
        spare_block=True,
        forks=True,
        several_tables=False,
        commonest_sizes_groups=False,
        unequal_blocks=False,
        knows_retention=False,
        default_retention=None,
        caches_states=False,
        keeps_states=False,
        matches_inside=False,
        writes_inside=False,
        names_returned=False,
        counts_drops=False,
        packing="repeats",
    ),
)
# Up to 0.11 FlashInfer samples where it is installed, as in the published images: `pip install
# vllm` does not bring it, and 11 of 13 start-up logs that tell say that it is not there. From 0.12
# to 0.20 vLLM's own sampler runs, unless VLLM_USE_FLASHINFER_SAMPLER is 1.
_INSTALLED = SizingRules(flashinfer_if_installed=True, flashinfer_bytes_per_logit=10.0)
V0_8 = VllmVersion("0.8", replace(_INSTALLED, small_tier=()), _OLDER_BLOCKS)
V0_9 = VllmVersion("0.9", _INSTALLED, _OLDER_BLOCKS)
V0_11 = VllmVersion(
    "0.11",
    replace(V0_9.sizing, finds_nccl=True),
    BlockRules(
        "vllm-0.11",
        knows_watermark=False,
        blank_first=False,
        commonest_sizes_groups=False,
        unequal_blocks=False,
        any_kinds=False,
        knows_retention=False,
        default_retention=None,
        caches_states=False,
        keeps_states=False,
        plants_junctions=False,
        waits_for_return=False,
        matches_inside=False,
        writes_inside=False,
        names_returned=False,
        counts_drops=False,
        packing="repeats",
    ),
    SchedulingRules(
        reserves_full_isl=False,
        lone_request_ignores_threshold=False,
        continues_after_self_preemption=False,
        preemption_skips_next=True,
        tries_behind_too_long=True,
        speculates=False,
    ),
)
V0_12 = VllmVersion("0.12", SizingRules(finds_nccl=True, benchmarks_compiled=True), _OLDER_BLOCKS)
V0_13 = VllmVersion("0.13", replace(V0_12.sizing, keeps_moe_workspace=True), _OLDER_BLOCKS)
V0_14 = VllmVersion(
    "0.14",
    replace(
        V0_13.sizing,
        schedules_ahead=True,
        heeds_kv_cache_dtype=True,
        frees_chunks=True,
        reserves_video_text=False,
    ),
    _OLDER_BLOCKS,
)
V0_17 = VllmVersion(
    "0.17",
    replace(
        V0_14.sizing,
        sampler_bytes_per_logit=14.0,
        sampler_scratch_rows=132,
        state_a_sequence=True,
        fused_all_reduce="granules",
    ),
    _OLDER_BLOCKS,
)
V0_18 = VllmVersion(
    "0.18",
    replace(
        V0_17.sizing,
        non_torch_gib=0.25,
        non_torch_several_gib=0.7,
        non_torch_pcie_gib=0.5,
    ),
    _OLDER_BLOCKS,
)
V0_20 = VllmVersion(
    "0.20",
    replace(
        V0_18.sizing,
        default_utilization=0.92,
        charges_cuda_graphs=True,
    ),
    _REPEATED_BLOCKS,
)
V0_21 = VllmVersion(
    "0.21",
    replace(V0_20.sizing, tokens_by_concurrency=True, flashinfer_samples=True),
    _REPEATED_BLOCKS,
)
V0_22 = VllmVersion(
    "0.22",
    replace(V0_21.sizing, runner="qwen3", fused_all_reduce="exact"),
    BlockRules(
        "vllm-0.22",
        knows_watermark=False,
        blank_first=False,
        knows_retention=False,
        default_retention=None,
        caches_states=False,
        plants_junctions=False,
        counts_last_token=False,
        cuts_at_blocks=False,
        waits_for_return=False,
        retires_behind_gaps=False,
        matches_inside=False,
        trims_every_kind=False,
        writes_inside=False,
        names_returned=False,
        counts_drops=False,
        packing="repeats",
    ),
    SchedulingRules(
        lone_request_ignores_threshold=False,
        continues_after_self_preemption=False,
        preemption_skips_next=True,
        speculates=False,
    ),
)
V0_24 = VllmVersion("0.24", replace(V0_22.sizing, runner="listed"), _REPEATED_BLOCKS)
V0_25 = VllmVersion("0.25", replace(V0_22.sizing, runner="dense"), _REPEATED_BLOCKS)
V0_26 = VllmVersion(
    "0.26",
    replace(V0_25.sizing, batches_in_flight=2),
    replace(_OLDER_BLOCKS, packing="sizes"),
)
V0_27 = VllmVersion(
    "0.27",
    V0_26.sizing,
    BlockRules(
        "vllm-0.27",
        default_retention=None,
        caches_states=False,
        counts_last_token=False,
        stops_at_hits=False,
        retires_behind_gaps=False,
        parts_inside=False,
        trims_every_kind=False,
        writes_inside=False,
        names_returned=False,
        counts_drops=False,
    ),
    SchedulingRules(
        lone_request_ignores_threshold=False,
        continues_after_self_preemption=False,
        preemption_skips_next=True,
        looks_ahead=False,
        pads_in_idle_engine=False,
    ),
)
V0_28 = VllmVersion(
    "0.28",
    replace(V0_27.sizing, large_batch_bytes=160 * GIB),
)
V0_29 = VllmVersion("0.29", replace(V0_28.sizing, runner="all", runner_estimates_graphs=True))
_SHORT_MROPE = ("qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text")
V0_32 = VllmVersion("0.32", replace(V0_29.sizing, short_mrope_kinds=_SHORT_MROPE))
# The sampler's second pass, with every parameter set, is profiled as well.
V0_33 = VllmVersion("0.33", replace(V0_32.sizing, runner_bytes_per_logit=14.0, exports_states=True))
VERSIONS = (
    *(V0, V0_8, V0_9, V0_11, V0_12, V0_13, V0_14, V0_17, V0_18),
    *(V0_20, V0_21, V0_22, V0_24, V0_25, V0_26, V0_27, V0_28, V0_29, V0_32, V0_33),
)
NEWEST = V0_33
_NUMBER = r"v?(\d+)\.(\d+)(?:[.\w+-]*)?"
# A build of the main branch, so many commits behind a release; releases are about twice as many
# apart as this, so that those with more are nearer to the next.
_BUILD = r"\.dev(\d+)"
NEARER_TO_NEXT = 250
_SEMANTICS = {f"vllm-{version.name}": version for version in VERSIONS}


def _release(name: str) -> tuple[int, int]:
    match = re.fullmatch(_NUMBER, name)
    if not match:
        return 0, 0
    build = re.search(_BUILD, name)
    nearer = build is not None and int(build[1]) >= NEARER_TO_NEXT
    return int(match[1]), int(match[2]) + nearer


def scheduled_as(semantics: Semantics) -> VllmVersion:
    """The version that `scheduler.semantics` names."""
    return _SEMANTICS[semantics]


def vllm_version(name: str, where: str = "memory.engine_version") -> VllmVersion:
    """The version that a release such as "0.19.0" or "0.22.1rc1" belongs to ("V0": before 0.8).

    Of a build between two releases, such as "0.23.1rc1.dev531+ga65f93fb2", the nearer one's.
    """
    text = name.strip()
    if text.upper() == "V0":
        return V0
    if not re.fullmatch(_NUMBER, text):
        raise InputError(
            "not a version of vLLM", where=where, value=repr(name), limit='such as "0.33" or "V0"'
        )
    wanted = _release(text)
    return next(version for version in reversed(VERSIONS) if version.since <= wanted)


def known_release(name: str) -> str:
    """The release of this name; for later ones the newest known."""
    return NEWEST.name if _release(name.strip()) > NEWEST.since else name


def newer_than_known(name: str) -> str | None:
    """The sentence on a release newer than all known ones; None for others."""
    if known_release(name) == name:
        return None
    return (
        f"vLLM {name.strip()} is newer than any version that kvsim knows: the rules are those of "
        f"{NEWEST.name}"
    )
