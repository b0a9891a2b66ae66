"""How worker processes start: on Linux as forks of one process that has loaded kvsim already."""

import multiprocessing
import multiprocessing.forkserver
import sys
from multiprocessing.context import ForkServerContext, SpawnContext

_LOADED = ["kvsim.explore.worker", "kvsim.report.page", "kvsim.simulation"]


def start_loading() -> ForkServerContext | SpawnContext:
    """Start, in the background, a process that loads what workers need and from which workers are
    forked. A second call has no effect. On other systems every worker loads kvsim itself.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    multiprocessing.forkserver.ensure_running()
    return context
