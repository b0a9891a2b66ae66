"""The error to expect of composed step times, from points that no constant was fitted on.

`calibration/kernels/expected.json` has it by regime, made by `python -m evidence.points.expected`
of what `kvsim validate points --half judge --out` wrote; and where the host's part is borrowed, by
`python -m evidence.points.left_out`.
"""

import json
from typing import Any, NamedTuple

from kvsim.plumbing.shipped import shipped_folder

EXPECTED_FILE = shipped_folder("calibration") / "kernels" / "expected.json"
FEW, MANY = 8, 64  # clients of one copy: small and large batches
PROMPT_HEAVY = 4  # prompt tokens for each output token


class ExpectedError(NamedTuple):
    """Median and mean size of simulated / measured - 1 of a mean latency."""

    median: float
    mean: float


def regime_of(prompt_tokens: float, output_tokens: float, clients: float) -> str:
    """Regime of a load, such as "decode-bound, small batch", from mean tokens and clients."""
    size = "small batch" if clients <= FEW else "large batch" if clients > MANY else "middle batch"
    heavy = prompt_tokens >= PROMPT_HEAVY * output_tokens
    return f"{'prefill-bound' if heavy else 'decode-bound'}, {size}"


def spread(latency: str) -> tuple[float, float]:
    """(low, high) of measured / simulated of "tpot", "ttft" or "output_tokens_per_s" for 8 of 10
    servers that no constant was fitted on.
    """
    low, high = json.loads(EXPECTED_FILE.read_text("utf-8"))["spread"][latency]
    return low, high


# The latencies of each kind of step time whose servers were compared, by their names in the file.
_RANGES: dict[str, dict[str, str]] = {
    "kind": {"tpot_s": "tpot", "ttft_s": "ttft", "output_tokens_per_s": "output_tokens_per_s"},
    "fitted": {
        "tpot_s": "tpot_fitted",
        "ttft_s": "ttft_fitted",
        "output_tokens_per_s": "output_tokens_per_s_fitted",
    },
}
OTHER_LOADS = "tpot_fitted"


def interval_80(served: str) -> dict[str, Any] | None:
    """Ranges of measured / simulated that 8 of 10 servers lie in, by latency, as `--json` has them.

    served: the kind of servers, see `HostCost`. None if no such servers were compared.
    """
    found = _RANGES.get(served)
    if found is None:
        return None
    ranges = {latency: list(spread(name)) for latency, name in found.items()}
    return {"share": 0.8, "of": "measured / simulated", **ranges}


def interval_words(served: str) -> str | None:
    """The ranges of `interval_80` as a sentence with their source; None where `interval_80` has
    none.
    """
    if served == "fitted":
        (low, high), (soonest, latest) = spread("tpot_fitted"), spread("ttft_fitted")
        return (
            "Step times were fitted on a run of this server. Of such servers, 8 of 10 times per "
            f"output token of other loads lay between {low:.2g} and {high:.2g} times what is said "
            f"here, and mean times to the first token between {soonest:.2g} and {latest:.2g} times "
            "(docs/step-times.md)."
        )
    if served != "kind":
        return None
    (low, high), (soonest, latest) = spread("tpot"), spread("ttft")
    least, most = spread(OTHER_LOADS)
    return (
        "The host's time is that of servers of this kind, with default flags. Of servers left "
        f"out of the fit in turn, 8 of 10 times per output token lay between {low:.2g} and "
        f"{high:.2g} times what is said here. Mean times to the first token, with cold starts, lay "
        f"between {soonest:.2g} and {latest:.2g} times (docs/step-times.md). Settings of one "
        f"server compare better: with one load of it measured, 8 of 10 of its other loads lay "
        f"between {least:.2g} and {most:.2g} times."
    )


def interval_in_brief(served: str) -> str:
    """The ranges of `interval_80` in one sentence; empty if the kind of servers has none."""
    found = interval_80(served)
    if found is None:
        return ""
    low, high = found["tpot_s"]
    said = f"8 of 10 servers like this had {low:.2g} to {high:.2g} times the TPOT"
    if "ttft_s" in found:
        soonest, latest = found["ttft_s"]
        said += f", {soonest:.2g} to {latest:.2g} times the TTFT"
    return f"{said}; settings compare better."


def left_out_of(engine: str) -> dict[str, Any]:
    """Errors for servers of `engine` in sources that were left out of the fit: number of rows and
    median error, by measured quantity.
    """
    found: dict[str, Any] = json.loads(EXPECTED_FILE.read_text("utf-8"))["priors"].get(engine, {})
    return found


def prior_words(engine: str) -> str | None:
    """A sentence with the median errors of an engine's servers with default flags, each source left
    out of the fit once; None if the engine has no errors.
    """
    found = left_out_of(engine)
    if not found:
        return None
    names = {"step": "steps in logs", "tpot": "TPOT", "ttft": "TTFT"}
    each = [
        f"{names[of]} {100 * errors['median_error']:.0f} % ({errors['rows']} rows)"
        for of, errors in found.items()
    ]
    return (
        "Before a fit, median errors of servers with default flags, each source left out of the "
        f"constants in turn: {', '.join(each)}."
    )


def expected_error(latency: str, regime: str) -> ExpectedError | None:
    """The expected error of "tpot" or "ttft" in a regime; None if no point of it was judged.

    latency "left_out": of TPOT, regime "device" or "model", by what the host's part is borrowed
    over.
    """
    found = json.loads(EXPECTED_FILE.read_text("utf-8"))[latency].get(regime)
    return None if found is None else ExpectedError(*found)
