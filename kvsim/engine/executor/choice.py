"""Chooses the executor of a replica's engine."""

from collections.abc import Callable

from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Executor


def executor_of(
    *, connected: bool, over_stages: bool, hierarchical: bool
) -> Callable[[EngineCore], Executor]:
    """The executor class for an engine.

    connected: it has a KV connector. over_stages: it has several pipeline stages. hierarchical: it
    has SGLang's hierarchical cache.
    """
    if connected and over_stages:
        from kvsim.engine.executor.staged_copies import CopyingStages  # few runs have any of these

        return CopyingStages
    if connected:
        from kvsim.engine.executor.copies import CopyingExecutor

        return CopyingExecutor
    if over_stages:
        from kvsim.engine.executor.stages import Stages

        return Stages
    if hierarchical:
        from kvsim.engine.executor.hicache import HicacheExecutor

        return HicacheExecutor
    return Executor
