"""Which scheduler an engine with a KV connector has."""

from dataclasses import replace

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.schedulers.connected import ConnectedScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.speculation.verifier import Verifier
from kvsim.plumbing.errors import InputError


def made_connected(
    parts: ContinuousParts,
    connector: Connector,
    verifier: Verifier | None,
    ahead: bool,
    stages: int,
) -> ConnectedScheduler:
    """A scheduler with a connector. verifier: of drafts; None: there are none. ahead: of
    asynchronous scheduling. stages: of the pipeline. InputError for drafts over several stages.
    """
    if verifier is None and stages == 1:
        return ConnectedScheduler(parts, connector, overlaps=ahead)
    if verifier is None:
        from kvsim.engine.schedulers.connected_pipelined import ConnectedPipelinedScheduler

        staggered = replace(parts.knobs, decode_stagger=stages if ahead else 0)
        return ConnectedPipelinedScheduler(parts._replace(knobs=staggered), connector)
    if stages > 1:
        raise InputError(
            "tiers over pipeline stages are simulated without tokens drafted ahead",
            where="tier",
            value=f"{stages} stages, and speculative_config",
            remedy="leave tier or speculative_config out, or take tensor_parallel_size",
        )
    from kvsim.engine.schedulers.connected_speculating import ConnectedSpeculatingScheduler

    return ConnectedSpeculatingScheduler(parts, connector, verifier, overlaps=ahead)
