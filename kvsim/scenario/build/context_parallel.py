"""Decode context parallelism in a simulation: GPUs that share the tokens of each sequence."""

from kvsim.layout import KVLayout
from kvsim.memory import ALLOCATORS
from kvsim.memory.options import AllocatorOptions
from kvsim.scenario import Scenario
from kvsim.support.parts import ServerParts
from kvsim.support.table import check

BLOCK_SIZE = 16  # where no allocator names one: vLLM's default


def shared_layout(scenario: Scenario, layout: KVLayout) -> KVLayout:
    """The KV layout on one of the GPUs that share each context. InputError for allocators that do
    not support decode context parallelism.
    """
    num = scenario.model.decode_context_parallel_size
    if num == 1:
        return layout
    others = sorted({ALLOCATORS.name_of(each) for each in scenario.allocator} - {"paged"})
    check(ServerParts(context=num, allocator=", ".join(others) or "paged"))
    return layout.over_gpus(num)


def over_gpus(options: AllocatorOptions, num: int) -> AllocatorOptions:
    """The allocator options of one of `num` GPUs: a block covers `num` times as many tokens, and
    each GPU holds its share of the tokens.
    """
    if num == 1:
        return options
    tokens = num * (getattr(options, "block_size", None) or BLOCK_SIZE)
    return options.model_copy(update={"block_size": tokens})
