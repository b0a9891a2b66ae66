"""Export a run as a time series in OpenMetrics' text format, under vLLM's metric names.

`promtool tsdb create-blocks-from openmetrics FILE` imports it into Prometheus, where vLLM's own
dashboards show it.
"""

from collections.abc import Iterator
from math import ceil
from typing import ClassVar

import numpy as np
from pydantic import Field

from kvsim.interchange.exports.export import Export, Exported, gauges
from kvsim.interchange.exports.families import config_labels, families
from kvsim.interchange.exports.metrics_text import info, text

MOST_SAMPLES = 5000


class OpenMetrics(Export):
    """every_s is the time between samples in seconds (default: 1, or more for a very long run).
    start_unix_s is the Unix time at which the run began. Each replica of a fleet has its own
    instance label.
    """

    fleets: ClassVar[bool] = True
    what: ClassVar[str] = "a time series for Prometheus (promtool tsdb create-blocks-from)"
    every_s: float | None = Field(default=None, gt=0)
    start_unix_s: float = Field(default=0.0, ge=0, le=1e11)

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        yield "series.txt", self._text(exported)

    def _text(self, exported: Exported) -> Iterator[str]:
        replicas = exported.replicas
        end = max(float(gauges(each.run).time_s[-1]) for each in replicas)
        every = self.every_s or max(1.0, float(ceil(end / MOST_SAMPLES)))
        moments = np.arange(ceil(end / every) + 1).astype(np.float64) * every
        times = (self.start_unix_s + moments).tolist()
        # Dashboards choose by job and instance, which a Prometheus that scrapes would add.
        scraped = [{"job": "kvsim", "instance": f"kvsim:{at}"} for at in range(len(replicas))]
        engine = {"engine": "0", "model_name": exported.model}
        each = zip(scraped, replicas, strict=True)
        yield from text([({**by, **engine}, families(one, moments)) for by, one in each], times)
        each = zip(scraped, replicas, strict=True)
        yield from info([{**by, **config_labels(one)} for by, one in each], times)
        yield "# EOF\n"
