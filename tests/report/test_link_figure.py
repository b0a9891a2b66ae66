"""The figure of links over time, and its table."""

from pathlib import Path

import numpy as np
import pytest
from support.pages import figures
from support.scenarios import SESSIONS

import kvsim
from kvsim.plumbing.units import PS_PER_S
from kvsim.report.figures import FIGURES
from kvsim.report.filled_page import whole_page
from kvsim.report.page import contents
from kvsim.results import store

BEHIND = {
    "offloading": {"tier": [{"kind": "vllm-offloading", "kv_offloading_size": 0.5}]},
    "simple": {"tier": [{"kind": "vllm-simple-offloading", "kv_offloading_size": 0.5}]},
    "disaggregated": {
        "disaggregation": {"link_gb_per_s": 0.5, "prefill": {"replicas": 2}, "decode": {}}
    },
}


@pytest.mark.parametrize("behind", BEHIND)
def test_link_figure_lines_sum_to_the_moved_bytes(behind: str, tmp_path: Path) -> None:
    result = kvsim.simulate(SESSIONS | BEHIND[behind])
    run = result.runs[0]
    copies = run.table("links")
    found = run.summary.transfers or run.summary.offloading.tiers[0]
    of_tier = run.summary.transfers is None
    moved = found.stored_bytes + found.loaded_bytes if of_tier else found.num_bytes
    if not of_tier:
        assert len(copies) == found.transfers
        waits_s = (copies["start_ps"] - copies["asked_ps"]).mean() / PS_PER_S
        assert waits_s == pytest.approx(found.mean_wait_s)
    assert copies["num_bytes"].sum() == moved > 0
    assert (copies["asked_ps"] <= copies["start_ps"]).all()
    assert (copies["start_ps"] < copies["end_ps"]).all()

    store.write(tmp_path, result, None)
    for each in (result, store.read(tmp_path)):
        plot = FIGURES.get("links")().draw(each)
        names = set(copies["link"])
        assert len(plot.data) == 3 * len(names)
        unit_s = plot.layout.meta["unit_s"]
        width_s = (plot.data[0].x[1] - plot.data[0].x[0]) * unit_s
        carried, moving, waiting = (
            sum(float(np.sum(line.y)) for line in plot.data[panel::3]) * width_s
            for panel in range(3)
        )
        total_s = {
            (a, b): (copies[b] - copies[a]).sum() / PS_PER_S
            for a, b in (("start_ps", "end_ps"), ("asked_ps", "start_ps"))
        }
        assert carried == pytest.approx(moved / 1e9, rel=1e-3)
        assert moving == pytest.approx(total_s["start_ps", "end_ps"], rel=1e-3)
        assert waiting == pytest.approx(total_s["asked_ps", "start_ps"], rel=1e-3, abs=1e-6)


def test_runs_without_links_have_no_table_and_no_figure() -> None:
    result = kvsim.simulate(SESSIONS)
    assert result.runs[0].table("links") is None
    assert FIGURES.get("links")().draw(result) is None


def test_legends_list_runs_with_lines_and_cards_omit_prefill_replicas() -> None:
    """Transfers are one line of a deployment, and prefill replicas have no time per output token;
    bars beside those of the decode replicas would rank parts of one deployment.
    """
    page = contents(kvsim.simulate(SESSIONS | BEHIND["disaggregated"]))
    assert page["labels"] == ["paged", "paged: prefill"]
    named = {name: figure.lines for name, figure in page["figures"].items() if figure.lines}
    assert named["tpot"] == (0,)
    assert "links" not in named  # its dashes mean links, which the key of the runs does not say
    assert named["concurrency"] == named["ttft"] == (0, 1)
    assert {tuple(line.label for line in card.lines) for card in page["cards"]} == {("paged",)}
    html = whole_page(page)
    links = figures(html)["figure-links"]
    legend = [line["name"] for line in links["data"] if line["showlegend"]]
    assert links["layout"]["showlegend"]
    assert len(legend) == len(set(legend)) == len(links["data"]) / 3
    assert all(name.startswith("paged, ") for name in legend)
