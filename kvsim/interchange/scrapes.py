"""Recognise several scrapes of one server: equal start times, and counters that only grow.

Figures are computed from the difference between the first and the last scrape.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kvsim.interchange.to_scenario.drafts import ACCEPTED
from kvsim.readers.description import ServerSettings
from kvsim.readers.detect import Read
from kvsim.readers.sglang.metrics import figures_of_sums as sglang_figures
from kvsim.readers.vllm.metric_names import figures_of_sums as vllm_figures
from kvsim.readers.vllm.metric_names import speculation_from

_FIGURES: dict[str, Callable[[Mapping[str, float]], dict[str, float]]] = {
    "vllm-metrics": vllm_figures,
    "sglang-metrics": sglang_figures,
}
_SAME_START_S = 0.5
_GROWS = ("_total", "_sum", "_count", "_bucket", "_hit_tokens")


def of_one_server(reads: Sequence[Read], notes: list[str]) -> list[Read]:
    """The sources, with all scrapes of one server replaced by one.

    Its settings are those of the last scrape. Its figures come from the differences between first
    and last. A note lists the scrapes.
    """
    groups: dict[tuple[str, int], list[Read]] = defaultdict(list)
    for read in reads:
        scrape = read.description.scrape
        if scrape is not None and scrape.started_s is not None and read.format in _FIGURES:
            groups[read.format, round(scrape.started_s / _SAME_START_S)].append(read)
    made: dict[int, Read] = {}
    left_out: set[int] = set()
    for group in groups.values():
        if len(group) > 1:
            ordered = sorted(group, key=_counted)
            first, last = ordered[0], ordered[-1]
            made[id(last)] = _between(first, last)
            left_out |= {id(each) for each in group if each is not last}
            notes.append(
                f"{', '.join(each.name for each in ordered)} are scrapes of one server, which "
                f"started once: figures are those between {first.name} and {last.name}"
            )
    return [made.get(id(read), read) for read in reads if id(read) not in left_out]


def with_acceptance(settings: ServerSettings, reads: Sequence[Read]) -> ServerSettings:
    """The settings, with the drafts' acceptance rate from a scrape, if speculative decoding is
    configured and no source gives a rate.
    """
    config = settings.speculative_config
    measured = (read.description.measured for read in reads)
    found = next((found for each in measured if (found := speculation_from(each))), None)
    if config is None or found is None or config.keys() & set(ACCEPTED):
        return settings
    rate = found["acceptance_rate"]
    return settings.model_copy(update={"speculative_config": {**config, "acceptance_rate": rate}})


def _counted(read: Read) -> float:
    """Sum of all counters; a later scrape has a larger one."""
    scrape = read.description.scrape
    assert scrape is not None
    return sum(value for name, value in scrape.sums.items() if name.endswith(("_total", "_count")))


def _between(first: Read, last: Read) -> Read:
    before, after = first.description.scrape, last.description.scrape
    assert before is not None
    assert after is not None
    sums = {
        name: value - before.sums.get(name, 0.0) if name.endswith(_GROWS) else value
        for name, value in after.sums.items()
    }
    figures = _FIGURES[last.format](sums)
    name = f"{first.name} to {last.name}"
    return last._replace(
        name=name, description=replace(last.description, measured=figures, scrape=None)
    )
