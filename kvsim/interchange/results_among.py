"""Several results of a benchmark among the sources: a scenario each, never the first of them."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kvsim.readers.detect import Read
from kvsim.readers.reader import CLIENT

_TOTAL = re.compile(r"^summary", re.IGNORECASE)  # of inference-perf: all its stages together
_PLAIN = re.compile(r"[^\w.+-]+")


def results_among(reads: Sequence[Read]) -> list[Read]:
    """The sources that are each a client's whole result, of one format.

    None if there is one result, or if all are of different formats and so may be of one run.
    """
    own = [each for each in reads if each.rank == CLIENT and each.description.load is not None]
    forms = Counter(each.format for each in own)
    form, number = forms.most_common(1)[0] if forms else ("", 0)
    if number < 2:
        return []
    found = [each for each in own if each.format == form]
    stages = [each for each in found if not _TOTAL.match(each.name)]
    return stages if len(stages) > 1 else found


def reads_of(result: Read, results: Sequence[Read], reads: Sequence[Read]) -> list[Read]:
    """All sources but the other results."""
    others = {id(each) for each in results if each is not result}
    totals = {
        id(each)
        for each in reads
        if each.format == result.format and each is not result and _TOTAL.match(each.name)
    }
    return [each for each in reads if id(each) not in others | totals]


def scenario_paths(results: Sequence[Read], out: Path) -> list[Path]:
    """A file for each result in a folder that is called as the scenario was to be."""
    stems = [_PLAIN.sub("-", re.sub(r"\.jsonl?\b", "", each.name)).strip("-.") for each in results]
    several = {stem for stem, number in Counter(stems).items() if number > 1}
    return [
        out.with_suffix("") / f"{stem}{f'-{at}' if stem in several else ''}.toml"
        for at, stem in enumerate(stems, 1)
    ]
