"""The error to expect of composed step times, from points that no constant was fitted on.

`calibration/kernels/expected.json` has it by regime, made by `python -m evidence.points.expected`
of what `kvsim validate points --half judge --out` wrote; and where the host's part is borrowed, by
`python -m evidence.points.left_out`.
"""

import json
from typing import NamedTuple

from kvsim.plumbing.shipped import shipped_folder

EXPECTED_FILE = shipped_folder("calibration") / "kernels" / "expected.json"
FEW, MANY = 8, 64  # clients of one copy: small and large batches
PROMPT_HEAVY = 4  # prompt tokens for each output token


class ExpectedError(NamedTuple):
    """Median and mean size of simulated / measured - 1 of a mean latency."""

    median: float
    mean: float


def regime_of(prompt_tokens: float, output_tokens: float, clients: float) -> str:
    """The dominant part of such requests' time, and a class of batch size."""
    size = "small batch" if clients <= FEW else "large batch" if clients > MANY else "middle batch"
    heavy = prompt_tokens >= PROMPT_HEAVY * output_tokens
    return f"{'prefill-bound' if heavy else 'decode-bound'}, {size}"


def spread(latency: str) -> tuple[float, float]:
    """Range of measured / simulated for 8 of 10 of the servers not fitted on: of "tpot", "ttft" or
    "output_tokens_per_s".
    """
    low, high = json.loads(EXPECTED_FILE.read_text("utf-8"))["spread"][latency]
    return low, high


def expected_error(latency: str, regime: str) -> ExpectedError | None:
    """The expected error of "tpot" or "ttft" in a regime; None if no point of it was judged.

    latency "left_out": of TPOT, regime "device" or "model", by what the host's part is borrowed
    over.
    """
    found = json.loads(EXPECTED_FILE.read_text("utf-8"))[latency].get(regime)
    return None if found is None else ExpectedError(*found)
