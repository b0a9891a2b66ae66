"""Prompt tokens hit in the device's pool and in the tiers after it, over time."""

from typing import ClassVar

import numpy as np
import plotly.graph_objects as go

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.classes import run_line
from kvsim.report.figure import Figure, compact, plain, style
from kvsim.report.panels import over_time
from kvsim.results.result import Result

_BUCKETS = 80
_SOURCES = (
    ("in a tier", "host_cached_tokens", "storage_cached_tokens"),
    ("in the storage", "storage_cached_tokens"),
)

_COLUMNS = ("prompt_tokens", "cached_tokens", "host_cached_tokens", "storage_cached_tokens")


class HitsByTier(Figure):
    """Share of the prompt tokens that were hit, by tier."""

    title: ClassVar[str] = "Hits by tier over time"
    note: ClassVar[str] = (
        "Of the prompt tokens of the requests that started in each bucket of time, the share found "
        "anywhere, in any tier behind the device, and read from the storage behind host memory."
    )
    nothing: ClassVar[str] = "No run has tiers behind the device, or nothing was found in them."

    def draw(self, result: Result) -> go.Figure | None:
        """Up to three lines per run with tier hits; a bucket where no request started is a gap."""
        tables = [(index, run.label, run.requests) for index, run in enumerate(result.runs)]
        hit = [
            (index, label, requests[requests["scheduled_ps"] >= 0])
            for index, label, requests in tables
            if "host_cached_tokens" in requests
            and (requests["host_cached_tokens"] + requests["storage_cached_tokens"]).any()
        ]
        if not hit:
            return None
        end_ps = max(int(requests["finish_ps"].max()) for _, _, requests in hit)
        figure = go.Figure()
        above = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.03, "yanchor": "bottom"}
        style(
            figure,
            height_px=300,
            showlegend=True,
            legend=above,
            margin={"l": 52, "r": 12, "t": 56, "b": 34},
        )
        unit_s = over_time(figure, end_ps / PS_PER_S)
        edges = np.linspace(0, end_ps, _BUCKETS + 1)
        x = compact((edges[:-1] + edges[1:]) / 2 / PS_PER_S / unit_s)
        for index, label, requests in hit:
            times = requests["scheduled_ps"].to_numpy(np.float64)
            sums = {
                name: np.histogram(times, edges, weights=requests[name].to_numpy(np.float64))[0]
                for name in _COLUMNS
            }
            prompts = sums["prompt_tokens"]
            for place, (where, *names) in enumerate((("anywhere", "cached_tokens"), *_SOURCES)):
                found = sum((sums[name] for name in names), np.zeros(_BUCKETS))
                if not found.any():
                    continue
                missing = np.full(_BUCKETS, np.nan)
                share = np.divide(100 * found, prompts, out=missing, where=prompts > 0)
                dash = ("solid", "dash", "dot")[place]
                figure.add_scatter(
                    name=plain(f"{label}, {where}"),
                    x=x,
                    y=compact(share),
                    mode="lines",
                    line={**run_line(index), "width": 2, "dash": dash},
                    hovertemplate="%{y:.1f} %",
                )
        figure.update_yaxes(range=[0, 101], dtick=25, ticksuffix=" %")
        return figure
