"""Sentences on the tiers after the device."""

from typing import Any

import pytest
from support.scenarios import HOST_AND_FILES

import kvsim
from kvsim.report.numbers import seconds
from kvsim.report.tier_words import behind_device
from kvsim.report.words import paragraphs


@pytest.mark.parametrize("fleet", [{}, {"fleet": {"replicas": 2}}], ids=["alone", "fleet"])
def test_terminal_reports_hits_by_tier_waits_and_saved_time(fleet: dict[str, Any]) -> None:
    result = kvsim.simulate(HOST_AND_FILES | fleet)
    summary = result.fleets[0] if fleet else result.runs[0].summary
    assert summary.offloading is not None
    host, files = summary.offloading.tiers
    said = " ".join(behind_device([summary]))
    assert said in " ".join(paragraphs(result))
    assert f"{host.hit_tokens:,} tokens in vllm-offloading" in said
    assert f"{files.hit_tokens:,} tokens in file-system" in said
    assert f"Sequences waited {summary.offloading.loads_awaited} times" in said
    saved_s = summary.offloading.saved_s or 0.0
    assert seconds(abs(saved_s)) in said
    assert ("loads saved" in said) == (saved_s >= 0)


def test_report_says_if_tiers_had_no_hits_and_omits_runs_without_tiers() -> None:
    single = {"kind": "fixed", "tokens": 1}
    unlike = {**HOST_AND_FILES, "workload": {**HOST_AND_FILES["workload"], "turns": single}}
    result = kvsim.simulate(unlike)
    (said,) = behind_device([run.summary for run in result.runs])
    assert said == (
        "paged found nothing in the tiers behind the device (vllm-offloading and file-system)."
    )
    without = {key: value for key, value in HOST_AND_FILES.items() if key != "tier"}
    assert not behind_device([run.summary for run in kvsim.simulate(without).runs])
