"""The expected error range of simulated seconds: that of 8 of 10 similar measured servers."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.scenario.build.sized import SizedScenario
from kvsim.step_time.kernels.expected import (
    interval_80,
    interval_in_brief,
    interval_words,
)
from kvsim.whatif.findings import Findings


def with_interval(findings: Findings, folder: Path) -> Findings:
    """The findings with the error range of their seconds added, as a sentence and as data. folder:
    base of the scenario's relative paths.
    """
    served = _served(findings.scenario, folder)
    words, ranges = interval_words(served), interval_80(served)
    if words is None or ranges is None:
        return findings
    data = findings.data
    if isinstance(data, dict):
        data = {**data, "interval": ranges}
    return replace(findings, interval=(words,), brief_interval=interval_in_brief(served), data=data)


def _served(table: Mapping[str, Any], folder: Path) -> str:
    """Key of the measured servers that the step times resemble, as in `HostCost`; "" for none."""
    if not table or table.get("speculative_config"):
        return ""
    try:
        form = SizedScenario(Scenario.from_table(table, folder)).step_time
    except InputError:  # an answer about a scenario that cannot be run
        return ""
    return str(getattr(form, "served", ""))
