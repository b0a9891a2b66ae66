"""The parts of a scheduler of continuous batching."""

from typing import NamedTuple

from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.knobs import Knobs
from kvsim.memory.allocator import Allocator
from kvsim.vllm.rules import SchedulingRules


class ContinuousParts(NamedTuple):
    """The allocator, the longest sequence in tokens, the policies, vLLM's rules and the knobs."""

    allocator: Allocator
    max_model_len: int
    policies: Policies
    version: SchedulingRules
    knobs: Knobs
