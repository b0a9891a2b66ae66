"""How worker processes begin: on Linux as copies of one process that has loaded kvsim already."""

import multiprocessing
import multiprocessing.forkserver
import sys
from multiprocessing.context import ForkServerContext, SpawnContext

_LOADED = ["kvsim.explore.worker", "kvsim.report.page", "kvsim.simulation"]


def start_loading() -> ForkServerContext | SpawnContext:
    """Have a process load what workers need, and return at once: where workers come from. A second
    call changes nothing. Elsewhere than on Linux every worker loads kvsim itself.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    multiprocessing.forkserver.ensure_running()
    return context
