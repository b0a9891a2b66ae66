"""Fields that every meta.json has: a real engine's settings, from which the simulated engine is
made.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, PositiveInt

from kvsim.engine.replica import ReplicaSpec
from kvsim.plumbing.options import Options
from kvsim.request import Request
from kvsim.step_time.calibrated.identity import ModelIdentity


class RunMeta(Options):
    """Settings that every recording has. A subclass reads further fields.

    block_size is the number of tokens that one hash id of stream.jsonl represents. tick_seconds is
    the time between rows of timeseries.csv. clock_ahead_s is how far the clock of timeseries.csv is
    ahead of the clock of requests.csv; None: estimated from both files. peer_gb_per_s is the
    bandwidth of the link between the run's GPUs in one direction, in GB/s; None: the GPU model's
    own.
    """

    model_config = ConfigDict(extra="ignore")

    model: str
    gpu: str
    tensor_parallel_size: PositiveInt = 1
    peer_gb_per_s: Annotated[float | None, Field(gt=0)] = None
    max_model_len: PositiveInt
    block_size: PositiveInt
    tick_seconds: Annotated[float, Field(gt=0)] = 1.0
    clock_ahead_s: float | None = None
    source: str = ""

    @property
    @abstractmethod
    def engine(self) -> str:
        """The engine's name and version, such as `vLLM 0.9.1`."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences on the values that were assumed because the recording lacks them."""
        return ()

    @property
    def pool_recorded(self) -> bool:
        """Whether the size of the KV pool is recorded. Without a recorded size the simulated pool
        never fills.
        """
        return True

    @property
    def shares_prompts(self) -> bool:
        """Whether prefix caching is on: requests with equal beginnings of their prompts share KV
        blocks.
        """
        return True

    def serving(self, requests: Sequence[Request]) -> Self:
        """The settings for these requests; if the pool's size is not recorded, the pool is made
        large enough to hold all of them at once.
        """
        return self

    @abstractmethod
    def facts(self) -> list[tuple[str, str]]:
        """(label, value) pairs that describe the engine on a report page."""

    @abstractmethod
    def engine_facts(self) -> dict[str, Any]:
        """The engine's entry in the output of `--json`."""

    @abstractmethod
    def model_identity(self) -> ModelIdentity:
        """The model that the run served."""

    @abstractmethod
    def replica_spec(self) -> ReplicaSpec:
        """The simulated replica with these settings. It computes one step at a time (max_steps =
        1).
        """
