"""What differs in scheduling between versions of vLLM: one constant a version.

Read off the schedulers of the versions named (0.33.0, 0.27.1, 0.22.0, 0.11.2) and proved by
recorded schedules; 0.22 by tables that users reported.
"""

from dataclasses import dataclass
from typing import Literal

from kvsim.memory.block_rules import VLLM_0_11, VLLM_0_22, VLLM_0_27, VLLM_0_33, BlockRules

VersionName = Literal["vllm-0.33", "vllm-0.27", "vllm-0.22", "vllm-0.11"]


@dataclass(frozen=True, slots=True)
class VllmVersion:
    """blocks: the rules for blocks that go with it.

    reserves_full_isl: it knows scheduler_reserve_full_isl. lone_ignores_threshold: a request that
    has the engine for itself is not held to long_prefill_token_threshold. goes_on: under
    policy = "priority", the step goes on with others after one that preempted itself.
    loses_turns: under policy = "priority", where somebody earlier without a turn of its own in this
    step gave way, the next one goes without its turn.
    passes_over: without chunked prefill, the queue's next ones are tried behind one that is too
    long for what is left of the step. speculates: how it schedules drafted tokens is known;
    looks_ahead: the hash of a block can cover the tokens behind it, and what a drafter reads counts
    against the step. pads_alone: an admission that was hit but for one token is padded with drafts
    in an idle engine too, and starts without them where they do not fit below the longest sequence.
    """

    blocks: BlockRules
    reserves_full_isl: bool = True
    lone_ignores_threshold: bool = True
    goes_on: bool = True
    loses_turns: bool = False
    passes_over: bool = False
    speculates: bool = True
    looks_ahead: bool = True
    pads_alone: bool = True


VERSIONS: dict[VersionName, VllmVersion] = {
    "vllm-0.33": VllmVersion(VLLM_0_33),
    "vllm-0.27": VllmVersion(
        VLLM_0_27,
        lone_ignores_threshold=False,
        goes_on=False,
        loses_turns=True,
        looks_ahead=False,
        pads_alone=False,
    ),
    "vllm-0.22": VllmVersion(
        VLLM_0_22,
        lone_ignores_threshold=False,
        goes_on=False,
        loses_turns=True,
        speculates=False,
    ),
    "vllm-0.11": VllmVersion(
        VLLM_0_11,
        reserves_full_isl=False,
        lone_ignores_threshold=False,
        goes_on=False,
        loses_turns=True,
        passes_over=True,
        speculates=False,
    ),
}
