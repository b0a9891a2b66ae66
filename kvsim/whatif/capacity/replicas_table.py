"""The number of replicas for each rate, as a table, as JSON and in words."""

from collections.abc import Sequence
from typing import Any

from kvsim.report import numbers
from kvsim.whatif.capacity.answers import CapacityAnswer, Replicas
from kvsim.whatif.capacity.short_streams import short_sentences
from kvsim.whatif.findings import FindingsColumn, FindingsTable

Counted = Sequence[tuple[CapacityAnswer, Sequence[Replicas]]]


def replicas_table(found: Counted, unit: str) -> FindingsTable:
    """One row for each allocator and rate."""
    return FindingsTable(
        "Replicas",
        "The smallest fleet that keeps the objectives when it is run, behind the router of [fleet] "
        "(round robin without one): the mean over the seeds, rounded up, and (to be safe) the "
        "largest of them; the rate divided by what one replica holds out; and in how many seeds "
        "the fleet keeps the objectives, and with one replica less.",
        (
            "",
            FindingsColumn(unit, numbers.figures),
            "replicas",
            "to be safe",
            "by division",
            "kept",
            "with one less",
        ),
        [
            (
                *(answer.subject.label, each.rate_per_s, each.num, each.safe, each.divided),
                *(f"{kept} of {each.seeds}" for kept in (each.kept, each.kept_with_one_less)),
            )
            for answer, replicas in found
            for each in replicas
        ],
    )


def replicas_data(found: Counted) -> list[dict[str, Any]]:
    """The JSON answer: one entry for each allocator and rate."""
    return [
        {
            "label": answer.subject.label,
            **one._asdict(),
            "short": None if one.short is None else one.short._asdict(),
        }
        for answer, replicas in found
        for one in replicas
    ]


def replicas_sentences(found: Counted, unit: str) -> list[str]:
    """Sentences on rates for which the answer is unreliable because the fleet's stream is too
    short.
    """
    rates = dict.fromkeys(each.rate_per_s for _, replicas in found for each in replicas)
    return [
        sentence
        for rate in rates
        for sentence in short_sentences(
            [each.short for _, replicas in found for each in replicas if each.rate_per_s == rate],
            f"{numbers.figures(rate)} {unit}",
        )
    ]
