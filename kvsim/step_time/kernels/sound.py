"""Whether measured kernels can be what a server runs.

A table may hold kernels that were compiled or tuned while they were measured, or a fallback that no
server takes. Fp8 products in blocks of vLLM 0.27 on an RTX PRO 6000 take seconds. The rooflines
fitted over all devices find such curves. With a device left out of that fit, the kernels of a step
are off by 10 to 15 % in the median. A curve that takes MOST times as long as its roofline, in the
median of its sizes, is replaced by the roofline.
"""

from collections.abc import Callable
from statistics import median

from kvsim.step_time.kernels.tables import KernelLine

MOST = 2.5
SIZES = tuple(2**at for at in range(11))


def unsound(measured: KernelLine, expected: Callable[[float], float]) -> bool:
    """Whether the measured curve is far above the fitted roofline of the same work."""
    return median(measured.at(tokens) / expected(tokens) for tokens in SIZES) > MOST
