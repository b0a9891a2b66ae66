"""Choice of the engine class of a replica without a hierarchical cache."""

from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.parts import EngineParts


def engine_of(
    env: EngineClock, parts: EngineParts, *, connected: bool, over_stages: bool
) -> Engine:
    """An engine in waves, with a connector, or plain; these two over stages, too."""
    if parts.waves is not None:
        from kvsim.engine.wave_engine import WaveEngine  # few runs have any of these

        return WaveEngine(env, parts)
    if connected and over_stages:
        from kvsim.engine.staged_engine import StagedEngine

        return StagedEngine(env, parts)
    if connected:
        from kvsim.engine.connected_engine import ConnectedEngine

        return ConnectedEngine(env, parts)
    if over_stages:
        from kvsim.engine.pipelined_engine import PipelinedEngine

        return PipelinedEngine(env, parts)
    return Engine(env, parts)
