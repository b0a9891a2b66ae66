"""Export the /metrics of vLLM's server at the end of the run."""

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

import numpy as np

from kvsim.interchange.exports.export import Export, Exported, gauges
from kvsim.interchange.exports.families import config_labels, copies, families
from kvsim.interchange.exports.metrics_text import info, text


class VllmMetricsExport(Export):
    """Prometheus text under vLLM's metric names. Each replica of a fleet is one engine of the
    server.
    """

    fleets: ClassVar[bool] = True
    what: ClassVar[str] = "a scrape of /metrics when the run has ended"

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        yield "metrics.txt", _text(exported)


def _text(exported: Exported) -> Iterator[str]:
    replicas = exported.replicas
    end = np.asarray([max(float(gauges(each.run).time_s[-1]) for each in replicas)])
    named = [{"engine": str(at), "model_name": exported.model} for at in range(len(replicas))]
    each = zip(named, replicas, strict=True)
    yield from text([(by, chain(families(one, end), copies(one))) for by, one in each], None)
    yield from info(
        [{**config_labels(one), "engine": str(at)} for at, one in enumerate(replicas)], None
    )
