"""The page of many points: errors in tables, then every row."""

from collections.abc import Mapping, Sequence

from kvsim.report.template import rendered
from kvsim.validate.points.outcome import PointOutcome
from kvsim.validate.points.tables import PointTable, row_table
from kvsim.version import VERSION


def make_page(
    title: str,
    found: Mapping[str, object],
    tables: Sequence[PointTable],
    shown: Sequence[PointOutcome],
) -> str:
    """HTML that loads nothing. found: the answer as JSON has it. shown: the outcomes whose rows the
    page lists, none for totals alone.
    """
    facts = [(name.replace("_", " "), found[name]) for name in ("file", "half", "step_time")]
    every = [row_table(shown)] if shown else []
    return rendered(
        "points.html",
        "kvsim.validate.points",
        title=title,
        facts=[(name, value or "a scenario's default") for name, value in facts],
        tables=[*tables, *every],
        version=VERSION,
    )
