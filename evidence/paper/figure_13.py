"""Figure 13: the number of requests that the systems batch, averaged over iterations.

vLLM's batch at 2 requests/s is what the time model's speed is fitted on, and Orca (Max) always
holds seven buffers. The other two batches are free, and are tested as one draw (`one_draw`).
"""

from collections.abc import Iterator
from statistics import fmean, stdev

from evidence.paper.check import Check
from evidence.paper.experiment import SYSTEMS, Means, Setting
from evidence.paper.lengths import ALPACA_ASSUMED, ALPACA_SHAPES, alpaca
from evidence.paper.one_draw import Draw, half_width, one_draw

SOURCE = "PagedAttention, figure 13"
SHAREGPT_PER_S, ALPACA_PER_S = 2.0, 30.0
SHAREGPT = {"Orca (Max)": 7.00, "Orca (Pow2)": 9.81, "Orca (Oracle)": 13.62, "vLLM": 30.42}
ALPACA = {"Orca (Max)": 7.00, "Orca (Pow2)": 43.24, "Orca (Oracle)": 72.75, "vLLM": 132.44}
FIXED, FITTED = "Orca (Max)", "vLLM"
FREE = ("Orca (Pow2)", "Orca (Oracle)")
PRINTED = 0.005  # half of the published figure's last digit
ALPACA_S = (60.0, 200.0)
Runs = dict[str, list[Means]]


def simulate(setting: Setting) -> Runs:
    """Simulate every system under the same streams of ShareGPT's lengths."""
    return {
        name: setting.watch(tables, setting.sharegpt, SHAREGPT_PER_S, setting.streams)
        for name, tables in SYSTEMS.items()
    }


def checks(setting: Setting, runs: Runs) -> Iterator[Check]:
    """Checks of ShareGPT's batches, with a tolerance; Alpaca's are only reported, for every assumed
    shape of its lengths.
    """
    for name, published in SHAREGPT.items():
        batched = [means.running for means in runs[name]]
        spread = stdev(batched)
        free = half_width(spread, len(batched), len(FREE), PRINTED)
        yield Check(
            SOURCE,
            f"{name}: batched, ShareGPT at 2 requests/s" + (" (fitted)" if name == FITTED else ""),
            published,
            fmean(batched),
            "requests",
            PRINTED if name == FIXED else free,
            spread,
            streams=len(batched),
        )
    for shape in ALPACA_SHAPES:
        for name, published in ALPACA.items():
            if name == FIXED and shape != ALPACA_ASSUMED:
                continue  # seven buffers whatever the lengths
            found = setting.watch(SYSTEMS[name], alpaca(shape), ALPACA_PER_S, setting.few, ALPACA_S)
            yield Check(
                SOURCE,
                f"{name}: batched, Alpaca ({shape}) at 30 requests/s",
                published,
                fmean(means.running for means in found),
                "requests",
                PRINTED if name == FIXED else None,
                stdev(means.running for means in found),
                why="only the means of Alpaca's lengths are published; the shape is assumed",
                streams=len(found),
            )


def draw(runs: Runs) -> Draw:
    """Test of the paper's trace among the simulated streams, in both free batches at once."""
    rows = zip(*([means.running for means in runs[name]] for name in FREE), strict=True)
    published = {f"{name}: batched": SHAREGPT[name] for name in FREE}
    return one_draw(f"{SOURCE}, ShareGPT", published, list(rows), PRINTED)
