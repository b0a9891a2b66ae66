"""Common fields of every meta.json: a real engine's settings, and the simulated engine made of
them.
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
    """Settings that every recording has; further ones in the file are for its readers.

    block_size: tokens an id of stream.jsonl stands for. tick_seconds: between rows of the time
    series. clock_ahead_s: by how much the clock of the time series is ahead of that of the
    requests; None: found from the two. peer_gb_per_s: of the link between its GPUs, one way; None:
    the GPU's own.
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
        """The engine's name and version, in words."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences on the assumptions made where the recording has no value."""
        return ()

    @property
    def pool_recorded(self) -> bool:
        """Whether the size of the pool is known; another one never fills."""
        return True

    @property
    def shares_prompts(self) -> bool:
        """Whether the engine shares equal beginnings of prompts."""
        return True

    def serving(self, requests: Sequence[Request]) -> Self:
        """The settings for these requests: a pool that is not known has room for all."""
        return self

    @abstractmethod
    def facts(self) -> list[tuple[str, str]]:
        """The settings in words, for a page."""

    @abstractmethod
    def engine_facts(self) -> dict[str, Any]:
        """The engine as `--json` reports it."""

    @abstractmethod
    def model_identity(self) -> ModelIdentity:
        """The model that the run served."""

    @abstractmethod
    def replica_spec(self) -> ReplicaSpec:
        """The simulated replica that its settings make, one step at a time."""
