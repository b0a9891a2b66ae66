"""The figure of hits by tier."""

import numpy as np
from support.scenarios import HOST_AND_FILES

import kvsim
from kvsim.report.figures import FIGURES
from kvsim.report.measures import MEASURES
from kvsim.report.parts import PART_LOOKS
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


def test_hits_in_host_memory_and_in_files_have_separate_lines() -> None:
    result = kvsim.simulate(HOST_AND_FILES)
    plot = FIGURES.get("tiers")().draw(result)
    assert [line.name for line in plot.data] == [
        "paged, anywhere", "paged, in a tier", "paged, in the storage",
    ]  # fmt: skip
    assert plot.layout.showlegend  # a dash means a place, which the key of the runs does not say
    assert len({line.line.dash for line in plot.data}) == 3
    anywhere, tier, storage = ([y for y in line.y if y == y] for line in plot.data)
    assert all(0 <= s <= t <= a <= 100 for a, t, s in zip(anywhere, tier, storage, strict=True))
    assert max(storage) > 0


def test_hits_figure_sums_to_the_summarys_hits() -> None:
    """The figure once omitted hits that requests waited for, and the summary counted them."""
    result = Simulation(Scenario.from_table(HOST_AND_FILES)).result(addresses=True)
    (run,) = result.runs
    cache, events = run.summary.prefix_cache, run.table("events")
    assert cache.host_hit_tokens
    assert events is not None
    assert events["hit_tokens"].iloc[-1] == cache.hit_tokens
    assert events["query_tokens"].iloc[-1] == cache.query_tokens
    hits, asked = (np.diff(events[name], prepend=0) for name in ("hit_tokens", "query_tokens"))
    assert (hits <= asked).all()
    plot = FIGURES.get("hits")().draw(result)
    assert np.nanmax(plot.data[0].y) <= 100
    assert "a tier behind the device" in FIGURES.get("hits").note
    assert "tiers too" in MEASURES["hits"].meaning


def test_meaning_of_arriving_names_tiers_too() -> None:
    """The explanation once mentioned only decode engines, in runs without any."""
    (arriving,) = (look for look in PART_LOOKS if look.name == "arriving")
    assert "tier behind the device" in arriving.meaning
    assert "prefill engine" in arriving.meaning
