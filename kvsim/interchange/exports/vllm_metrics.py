"""A scrape of /metrics at the end of the run, as vLLM's server would answer it."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from kvsim.interchange.exports.export import Export, Exported, gauges
from kvsim.interchange.exports.families import config_labels, families
from kvsim.interchange.exports.metrics_text import info, text


class VllmMetricsExport(Export):
    """Prometheus' text, under vLLM's names."""

    what: ClassVar[str] = "a scrape of /metrics when the run has ended"

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        yield "metrics.txt", _text(exported)


def _text(exported: Exported) -> Iterator[str]:
    end = gauges(exported.run).time_s[-1:]
    labels = {"engine": "0", "model_name": exported.model}
    yield from text(families(exported, np.asarray(end)), labels, None)
    yield from info(config_labels(exported), None)
