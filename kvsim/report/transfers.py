"""Sentences on KV transfers between prefill and decode replicas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.report import numbers
from kvsim.report.names import called
from kvsim.results.summary import RunSummary

if TYPE_CHECKING:
    from kvsim.results.summary_beyond import TransferSummary


def served(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs without prefill replicas, which only compute prompts."""
    return [run for run in runs if run.pool_of != "prefill"]


def transferred(runs: Sequence[RunSummary]) -> list[str]:
    """Sentences on each run with separate prefill and decode replicas."""
    prompts = {run.label.rpartition(": ")[0]: run for run in runs if run.pool_of == "prefill"}
    return [
        sentence
        for run in runs
        if run.transfers is not None
        for sentence in _sentences(run, run.transfers, prompts.get(run.label))
    ]


def _sentences(run: RunSummary, found: "TransferSummary", prompts: RunSummary | None) -> list[str]:
    said = [
        f"{called(run.label)} computed prompts on "
        f"{numbers.plural(found.prefill_replicas, 'replica')} and outputs on "
        f"{numbers.plural(found.decode_replicas, 'replica')}: "
        f"{numbers.plural(found.transfers, 'transfer')} moved {numbers.size(found.num_bytes)}, "
        f"{numbers.seconds(found.mean_s)} each after {numbers.seconds(found.mean_wait_s)} of "
        f"waiting, and ports were busy {numbers.percent(found.port_busy)} of the time."
    ]
    coming = numbers.percent(run.memory.part("arriving"))
    told = f"Of the decode pool {coming} was reserved for what was on its way"
    if prompts is not None:
        kept = numbers.percent(prompts.memory.part("kept_for_readers"))
        told += f", of the prefill pool {kept} held prompts that were yet to be read"
    said.append(told + ".")
    if found.expired:
        said.append(f"{numbers.plural(found.expired, 'prompt')} expired before they were read.")
    return said
