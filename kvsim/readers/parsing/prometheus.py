"""Parse Prometheus' and OpenMetrics' text format, of any server.

prometheus_client has a parser too, but its import loads an HTTP server (114 modules, 0.1 s), and
its errors do not give the line. It would also be one more dependency of the plain installation.
Tests compare exported text with its result.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvsim.plumbing.reading.files import row_error
from kvsim.readers.parsing.ledger import SourceLedger

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S.*)?$")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"\s*,?')
_KIND = re.compile(r"_(?:total|sum|count|bucket|created)$")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}


class Metric(NamedTuple):
    """One sample of a metric: its name, labels and value."""

    name: str
    labels: dict[str, str]
    value: float


def metrics(text: str, where: str, ledger: SourceLedger | None = None) -> Iterator[Metric]:
    """The samples in order of the text; InputError for an invalid line.

    The ledger gets the names of all metrics; the series of a histogram or summary are recorded
    under their common name.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            raise row_error(where, number, "not a sample of a metric", line)
        try:
            value = float(match[3])
        except ValueError:
            raise row_error(where, number, "not a number", match[3]) from None
        if ledger is not None:
            ledger.there("metrics", "", [family(match[1])])
        yield Metric(match[1], _labels(match[2] or "", where, number), value)


def started_s(samples: Iterable[Metric]) -> float | None:
    """Unix time at which the server's process started; None if no metric says so."""
    found = (each.value for each in samples if each.name == "process_start_time_seconds")
    return next((value for value in found if finite(value)), None)


def family(name: str) -> str:
    """A metric's name without the suffix of its type, such as `_bucket` or `_total`."""
    return _KIND.sub("", name)


def finite(value: float) -> bool:
    """Whether a sample's value is a finite number."""
    return math.isfinite(value)


def _labels(text: str, where: str, number: int) -> dict[str, str]:
    found, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            raise row_error(where, number, "not a label", text[at:])
        found[match[1]] = _ESCAPE.sub(lambda part: _ESCAPED.get(part[1], part[1]), match[2])
        at = match.end()
    return found
