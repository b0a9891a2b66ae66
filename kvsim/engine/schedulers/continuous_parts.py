"""The parts of a scheduler of continuous batching."""

from typing import NamedTuple

from kvsim.engine.connectors.connector import NO_CONNECTOR, Connector
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.knobs import Knobs
from kvsim.engine.speculation.verifier import NO_DRAFTS, Verifier
from kvsim.memory.allocator import Allocator
from kvsim.vllm.rules import SchedulingRules


class ContinuousParts(NamedTuple):
    """The allocator, the longest sequence in tokens, the policies, vLLM's rules and the knobs.

    drafter, connector: NO_DRAFTS, NO_CONNECTOR without. stages: of the pipeline. ahead: a step is
    scheduled before the one before it has returned.
    """

    allocator: Allocator
    max_model_len: int
    policies: Policies
    version: SchedulingRules
    knobs: Knobs
    drafter: Verifier = NO_DRAFTS
    connector: Connector = NO_CONNECTOR
    stages: int = 1
    ahead: bool = False
