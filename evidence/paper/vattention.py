"""vAttention's page groups: largest waste per request, and the effect on the batch size.

On every GPU, each layer's keys and each layer's values grow by one page group at a time. So the
last group of 2 * layers tensors may hold a single token.
"""

from collections.abc import Iterator

from evidence.paper.check import Check
from kvsim.model import named_model
from kvsim.plumbing.units import KIB, MIB

SOURCE = "vAttention (ASPLOS 2025)"
GPUS = {"yi-6b": 1, "llama-3-8b": 2, "yi-34b": 2}  # as the paper serves them
WORST_MIB = {64 * KIB: (4, 15), 256 * KIB: (16, 60), 2 * MIB: (128, 480)}  # over these models
SMALL, LARGE = 64 * KIB, 2 * MIB
LARGEST_BATCH = {"yi-6b": (240, 187), "llama-3-8b": (258, 203), "yi-34b": (68, 56)}
REFERENCE = "yi-6b"


def checks() -> Iterator[Check]:
    """Checks of the paper's table, exactly; batch sizes are only reported."""
    for page, (least, most) in WORST_MIB.items():
        wasted = [worst_bytes(name, page) / MIB for name in GPUS]
        size = f"{page // KIB} KiB"
        for which, published, simulated in (
            ("least", least, min(wasted)),
            ("most", most, max(wasted)),
        ):
            quantity = f"worst waste a request, groups of {size}, {which} of three models"
            yield Check(SOURCE, quantity, published, simulated, "MiB", 0.0)
    tokens = mean_tokens(REFERENCE)
    for name, (small, large) in LARGEST_BATCH.items():
        if name == REFERENCE:
            continue
        kept = tokens * token_bytes(name)
        predicted = small * (kept + worst_bytes(name, SMALL) / 2)
        predicted /= kept + worst_bytes(name, LARGE) / 2
        yield Check(
            SOURCE,
            f"{name}: largest batch with groups of 2 MiB, from that with 64 KiB ({small})",
            large,
            predicted,
            "requests",
            None,
            why="the paper's workload is not given; its mean length follows from Yi-6B's batches",
        )


def worst_bytes(name: str, page: int) -> int:
    """Bytes of page groups that hold one token each, over all tensors and GPUs."""
    return 2 * len(named_model(name).layers) * page * GPUS[name]


def token_bytes(name: str) -> int:
    """KV bytes of one token on all GPUs together, at 16 bits per value."""
    return named_model(name).kv_layout().bytes_per_token


def mean_tokens(name: str) -> float:
    """Mean tokens per request at which both batch sizes that the paper gives fill the same pool.
    Each request wastes half of its worst case.
    """
    small, large = LARGEST_BATCH[name]
    spare = large * worst_bytes(name, LARGE) - small * worst_bytes(name, SMALL)
    return spare / 2 / (small - large) / token_bytes(name)
