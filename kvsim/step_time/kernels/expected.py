"""The error to expect of composed step times, from points that no constant was fitted on.

`calibration/kernels/expected.json` has it by regime, made by `python -m evidence.points.expected`
of what `kvsim validate points --half judge --out` wrote.
"""

import json
from typing import NamedTuple

from kvsim.plumbing.shipped import shipped_folder

EXPECTED_FILE = shipped_folder("calibration") / "kernels" / "expected.json"
FEW, MANY = 8, 64  # clients of one copy: small and large batches
PROMPT_HEAVY = 4  # prompt tokens for each output token


class ExpectedError(NamedTuple):
    """Median and mean size of simulated / measured - 1 of mean times per output token."""

    median: float
    mean: float


def regime_of(prompt_tokens: float, output_tokens: float, clients: float) -> str:
    """What the time of such requests goes to, and how large their batch is."""
    size = "small batch" if clients <= FEW else "large batch" if clients > MANY else "middle batch"
    heavy = prompt_tokens >= PROMPT_HEAVY * output_tokens
    return f"{'prefill-bound' if heavy else 'decode-bound'}, {size}"


def expected_error(regime: str) -> ExpectedError | None:
    """Of a regime; None where no point of it was judged."""
    found = json.loads(EXPECTED_FILE.read_text("utf-8"))["tpot"].get(regime)
    return None if found is None else ExpectedError(*found)
