"""Tables of compared runs: signed errors, one row per run; and their spread by GPU."""

from collections.abc import Iterable, Sequence

import numpy as np

from kvsim.validate.runs.compare import RELATIVE, Compared

HEADS = (
    *("run", "requests", "TTFT", "TPOT", "E2E", "makespan", "running", "resident tokens"),
    *("KV recorded", "simulated", "preemptions recorded", "simulated"),
)
BAND_HEADS = ("GPU", "GPUs", "runs", "TTFT", "TPOT", "E2E")
_BAND = ("ttft_s", "tpot_s", "e2e_s")


def rows(compared: Iterable[Compared]) -> list[tuple[str, ...]]:
    """One row per run with the columns HEADS; a cell is empty if nothing was recorded."""
    found: list[tuple[str, ...]] = []
    for one in compared:
        if one.simulated is None:
            found.append((one.trial.name, f"refused: {one.refused}"))
            continue
        errors, recorded = one.errors(), one.trial.recorded
        cells = [_signed(errors.get(name)) for name in RELATIVE]
        kv, lost = recorded.get("kv_cache_usage"), recorded.get("preemptions")
        cells += ["", ""] if kv is None else [_share(kv), _share(one.simulated["kv_cache_usage"])]
        cells += (
            ["", ""] if lost is None else [f"{lost:.0f}", f"{one.simulated['preemptions']:.0f}"]
        )
        found.append((one.trial.name, f"{len(one.trial.requests):,}", *cells))
    return found


def band(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """One row per GPU type and number of GPUs: the median error, and the range of the middle 80 %
    of runs.

    Runs with features that no simulated engine has are left out.
    """
    groups: dict[tuple[str, int], list[Compared]] = {}
    for one in compared:
        if one.simulated is not None and not one.trial.beyond:
            meta = one.trial.meta
            groups.setdefault((meta.gpu, meta.tensor_parallel_size), []).append(one)
    found = []
    for (gpu, gpus), ones in sorted(groups.items()):
        cells = []
        for name in _BAND:
            errors = [one.errors()[name] for one in ones if name in one.errors()]
            if not errors:
                cells.append("")
                continue
            low, middle, high = np.quantile(errors, [0.1, 0.5, 0.9]).tolist()
            cells.append(f"{_signed(middle)} ({_signed(low)} to {_signed(high)})")
        found.append((gpu, str(gpus), str(len(ones)), *cells))
    return found


def markdown(heads: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A Markdown table; rows with too few cells are padded with empty ones."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    full = ([*row, *[""] * (len(heads) - len(row))] for row in cells)
    lines += [f"| {' | '.join(row)} |" for row in full]
    return "\n".join(lines) + "\n"


def _signed(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.0f} %"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
