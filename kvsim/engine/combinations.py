"""The parts of a replica that are simulated together, and the refusal of others."""

from kvsim.engine.speculation.acceptance import Acceptance
from kvsim.engine.speculation.verifier import Verifier
from kvsim.layout import KVLayout
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.speculation import Speculation


def check_stages(
    stages: int,
    layout: KVLayout,
    *,
    connector: bool,
    hierarchical: bool,
    planned: bool,
) -> None:
    """InputError for parts that are simulated on one pipeline stage alone. planned: the blocks of
    the groups of `layout` are known, so windows and states are simulated over stages too.
    """
    if stages == 1:
        return
    only_one = {
        "a KV connector": connector,
        "a hierarchical cache": hierarchical,
        "layers with a window or a state": not planned and not _keeps_every_token(layout),
    }
    for what, there in only_one.items():
        if there:
            raise InputError(
                f"{what}: simulated on one pipeline stage alone",
                where="model.pipeline_parallel_size",
                value=stages,
                limit=1,
                remedy="take tensor_parallel_size; kvsim memory sizes the stages",
            )


def _keeps_every_token(layout: KVLayout) -> bool:
    """Whether all layers are of one group that keeps every token."""
    first, *others = layout.groups
    return not others and first.kind in ("full", "mla") and first.chunk_tokens is None


def verifier_of(
    speculation: Speculation | None,
    acceptance: Acceptance | None,
    allocator: AllocatorOptions,
    max_model_len: int,
) -> Verifier | None:
    """The part that verifies the drafts; None without drafts.

    InputError for drafts that their method or the allocator does not have.
    """
    if speculation is None or acceptance is None:
        return None
    speculation.check()
    if not allocator.speculates:
        raise InputError(
            "this allocator has no slots for tokens drafted ahead",
            where="allocator.kind",
            remedy='kind = "paged", or leave speculative_config out',
        )
    return Verifier(speculation, acceptance, max_model_len)


def check_waves(*, connector: bool, hierarchical: bool, depth: int) -> None:
    """InputError for parts of ranks that cannot step together. depth: steps in flight."""
    beyond = "a KV connector" if connector else None
    beyond = "a hierarchical cache" if hierarchical else beyond
    beyond = "two steps in flight" if depth > 1 else beyond
    if beyond is not None:
        raise InputError(
            f"ranks that step together are not simulated with {beyond}",
            where="fleet.router.lockstep",
            value=True,
            remedy="leave it out; async_scheduling = false, or under SGLang "
            "disable_overlap_schedule = true, has one step in flight",
        )
