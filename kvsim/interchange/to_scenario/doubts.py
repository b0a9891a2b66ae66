"""Notes on implausible combinations in the sources: a GPU in use by others, KV bytes that do not
match KV tokens.
"""

from collections.abc import Iterator

from kvsim.device import named_device
from kvsim.interchange.to_scenario.served import ServedModel
from kvsim.plumbing.units import GIB
from kvsim.readers.description import ServerSettings

_LEAST_FREE = 0.9  # of a GPU of one's own, before weights are loaded
_ROUNDED = 0.02  # of bytes that a log prints to two digits, and of pages that do not divide


def doubts_of(settings: ServerSettings, served: ServedModel, device: str) -> Iterator[str]:
    """Sentences on implausible values, for readers of the scenario."""
    memory = named_device(device).memory_bytes / GIB
    free = settings.free_memory_gib
    if free is not None and free > memory:
        yield (
            f"{free:g} GiB were free before the weights, and {device} has {memory:.2f} GiB: is it "
            "another GPU?"
        )
    elif free is not None and free < _LEAST_FREE * memory:
        yield (
            f"{free:g} of the {memory:.2f} GiB of {device} were free before the weights: others "
            "used the GPU, or it is another one; a pool that kvsim sizes takes all of it"
        )
    share, weights = settings.mem_fraction_static, settings.weights_gib
    if share is not None and weights is not None and weights > share * memory:
        yield (
            f"the weights of {weights:g} GiB are more than {share:g} of the {memory:.2f} GiB of "
            f"{device}: such a server does not start"
        )
    if settings.engine == "sglang":
        yield from _bytes_of_tokens(settings, served)


def _bytes_of_tokens(settings: ServerSettings, served: ServedModel) -> Iterator[str]:
    """A sentence if the logged bytes of K and V do not match the logged number of tokens for this
    model.
    """
    size, tokens = settings.available_kv_gib, settings.kv_cache_tokens
    if size is None or tokens is None or served.model is None or served.options is None:
        return
    layout = served.options.layout(served.model)
    growing = [group for group in layout.groups if group.bytes_per_token]
    if len(growing) != 1:
        return  # each kind of layer has tokens of its own
    expected = tokens * layout.bytes_per_token / GIB
    if expected > size * (1 + _ROUNDED):
        yield (
            f"{tokens:,} tokens of this model are {expected:.2f} GiB a GPU, and the log has "
            f"{size:g} GiB: is it split over {expected / size:.3g} times as many GPUs as the "
            "sources say (--tensor-parallel-size), or are K and V of a smaller type?"
        )
    elif expected < size * (1 - _ROUNDED):
        yield (
            f"{tokens:,} tokens of this model are {expected:.2f} GiB a GPU, and the log has "
            f"{size:g} GiB: is it another model, or are K and V of a larger type?"
        )
