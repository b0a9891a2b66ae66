"""Figure 18b: block sizes.

Small blocks waste little memory; their cost in the attention kernel is not modelled here.

The paper finds block sizes of 16 to 128 tokens best for ShareGPT and 16 to 32 for Alpaca. Larger
blocks lose throughput to half-filled blocks. The published shares of token states by block size are
from an independent re-implementation of the paper's artifact.
"""

from collections.abc import Iterator

from evidence.paper.check import Check
from evidence.paper.experiment import WINDOW_S, Means, Setting, mean_of, vllm
from evidence.paper.lengths import ALPACA_ASSUMED, Sampler, alpaca

SOURCE = "PagedAttention, figure 18b"
REWORKED = "re-implementation of the PagedAttention artifact"
TOKEN_SHARES = {1: 97.9, 16: 96.3, 64: 91.4, 128: 85.4, 256: 75.2}
SHAREGPT_PER_S, ALPACA_PER_S = 4.0, 60.0  # above what vLLM sustains
SHAREGPT_BEST, ALPACA_BEST = 128, 32  # the largest blocks that still serve best
BEST_SHARE = 0.9
TOLERANCE = 1.0
ALPACA_S = (60.0, 200.0)
Curve = dict[int, Means]


def sharegpt_curve(setting: Setting) -> Curve:
    """Means of a saturated run with ShareGPT's lengths, by block size."""
    return _curve(setting, setting.sharegpt, SHAREGPT_PER_S, tuple(TOKEN_SHARES), setting.few)


def checks(setting: Setting, sharegpt: Curve) -> Iterator[Check]:
    """Checks of token shares, with a tolerance; the largest good block size is reported."""
    for size, published in TOKEN_SHARES.items():
        share = 100 * sharegpt[size].shares["used"]
        quantity = f"vLLM: token states, block {size}, ShareGPT"
        yield Check(REWORKED, quantity, published, share, "% of KV memory", TOLERANCE)
    lengths = alpaca(ALPACA_ASSUMED)
    other = _curve(setting, lengths, ALPACA_PER_S, (16, 32, 64, 128), 1, ALPACA_S)
    for name, curve, published in (
        ("ShareGPT", sharegpt, SHAREGPT_BEST),
        (f"Alpaca ({ALPACA_ASSUMED})", other, ALPACA_BEST),
    ):
        yield Check(
            SOURCE,
            f"largest block that keeps {BEST_SHARE:.0%} of block 16's tokens/s, {name}",
            published,
            largest_good(curve),
            "tokens",
            None,
            why="the paper reads its best range off latencies and gives no threshold",
        )


def largest_good(curve: Curve) -> int:
    """The largest block size with at least BEST_SHARE of the throughput of 16 tokens per block."""
    least = BEST_SHARE * curve[16].tokens_per_s
    return max(size for size, means in curve.items() if means.tokens_per_s >= least)


def _curve(
    setting: Setting,
    lengths: Sampler,
    rate_per_s: float,
    sizes: tuple[int, ...],
    streams: int,
    window_s: tuple[float, float] = WINDOW_S,
) -> Curve:
    found = {}
    for size in sizes:
        runs = setting.watch(vllm(size), lengths, rate_per_s, streams, window_s)
        found[size] = mean_of(runs)
    return found
