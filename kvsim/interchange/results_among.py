"""Find several benchmark results among the sources: each becomes a scenario."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from kvsim.readers.detect import Read
from kvsim.readers.reader import CLIENT

_OF_SERVER, _OF_CLIENT = "_prometheus_metrics", "_lifecycle_metrics"  # of one stage of it
_TOTAL = re.compile(r"^summary", re.IGNORECASE)  # of inference-perf: all its stages together
_SERVER = re.compile(r", server \d{1,4}$")
_PLAIN = re.compile(r"[^\w.+-]+")


def results_among(reads: Sequence[Read]) -> list[Read]:
    """The sources that are complete results of a client, if several have the same format.

    Empty if there is one result, or if all formats differ, since the results may then be of one
    run.
    """
    own = [each for each in reads if each.rank == CLIENT and each.description.load is not None]
    forms = Counter(each.format for each in own)
    form, number = forms.most_common(1)[0] if forms else ("", 0)
    if number < 2:
        return []
    names = {each.name for each in own}
    found = [each for each in own if each.format == form and _client_of(each, names) is None]
    stages = [each for each in found if not _TOTAL.match(each.name)]
    several = stages if len(stages) > 1 else found
    return several if len(several) > 1 else []


def servers_among(reads: Sequence[Read]) -> list[Read]:
    """The servers of one manifest; empty if it starts only one, or if several manifests start
    servers.
    """
    found = [each for each in reads if _SERVER.search(each.name)]
    return found if len({_SERVER.sub("", each.name) for each in found}) == 1 else []


def _client_of(read: Read, names: Collection[str]) -> str | None:
    """The name of inference-perf's client-side file for a stage, given the server-side file; None
    if there is none.
    """
    name = read.name.replace(_OF_SERVER, _OF_CLIENT)
    return name if name != read.name and name in names else None


def reads_of(result: Read, results: Sequence[Read], reads: Sequence[Read]) -> list[Read]:
    """The sources for one result: all except other results and their server-side files."""
    names = {each.name for each in reads}
    others = {id(each) for each in results if each is not result}
    others |= {id(each) for each in reads if _client_of(each, names) not in (None, result.name)}
    totals = {
        id(each)
        for each in reads
        if each.format == result.format and each is not result and _TOTAL.match(each.name)
    }
    return [each for each in reads if id(each) not in others | totals]


def scenario_paths(results: Sequence[Read], out: Path) -> list[Path]:
    """One scenario file per result, in the folder `out` without its suffix."""
    stems = [_PLAIN.sub("-", re.sub(r"\.jsonl?\b", "", each.name)).strip("-.") for each in results]
    several = {stem for stem, number in Counter(stems).items() if number > 1}
    return [
        out.with_suffix("") / f"{stem}{f'-{at}' if stem in several else ''}.toml"
        for at, stem in enumerate(stems, 1)
    ]
