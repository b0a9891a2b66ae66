"""The parts that a scheduler of continuous batching is built from."""

from typing import NamedTuple

from kvsim.engine.connectors.connector import NO_CONNECTOR, Connector
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.knobs import Knobs
from kvsim.engine.speculation.verifier import NO_DRAFTS, Verifier
from kvsim.memory.allocator import Allocator
from kvsim.vllm.rules import SchedulingRules


class ContinuousParts(NamedTuple):
    """The parts of a `ContinuousScheduler`.

    max_model_len: tokens of the longest sequence. version: rules of the version of vLLM. drafter,
    connector: NO_DRAFTS, NO_CONNECTOR if there is none. stages: number of pipeline stages. ahead:
    asynchronous scheduling.
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
