"""How long memory was held, how long content was cached, how long memory was idle before reuse."""

from typing import ClassVar

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.cumulative import Curve, add_curves, weighed
from kvsim.report.figure import Figure
from kvsim.report.panels import panels
from kvsim.results.result import Result

_PANELS = ("held", "kept until hit or taken", "from being given back to the next owner")


class Lifetimes(Figure):
    """Three distributions over allocated spans of memory, weighted by bytes."""

    title: ClassVar[str] = "Lifetimes and reuse"
    note: ClassVar[str] = (
        "How long each buffer or block was held, how long its cached content was kept, and how "
        "long its address was free before the next owner; the height is the share of the bytes."
    )
    nothing: ClassVar[str] = "Nothing was held, or the runs were not traced."
    lines: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """A panel per distribution that any run has, with a curve per run."""
        tables = [(at, run, run.table("addresses")) for at, run in enumerate(result.runs)]
        curves: dict[str, list[Curve]] = {}
        for index, run, stays in tables:
            if stays is None or stays.empty:
                continue
            for name, values in zip(_PANELS, _spans_s(stays), strict=True):
                if len(values):
                    curves.setdefault(name, []).append(Curve(index, run.label, values))
        if not curves:
            return None
        names = [name for name in _PANELS if name in curves]
        figure = panels(names, panel_px=190, gap_px=36)
        add_curves(figure, [curves[name] for name in names])
        return figure


def _spans_s(stays: pd.DataFrame) -> tuple[NDArray[np.float64], ...]:
    """Times in seconds that memory was held, cached, and idle, each repeated in proportion to its
    bytes.

    Idle is the time from the end of one holder to the start of the next one at the same address.
    """
    held = (stays["kind"] == "held").to_numpy()
    address, num_bytes, start_ps, end_ps = (
        stays[name].to_numpy() for name in ("address", "num_bytes", "start_ps", "end_ps")
    )
    kept = ~held
    kept_spans, kept_bytes = (end_ps[kept] - start_ps[kept]) / PS_PER_S, num_bytes[kept]
    address, num_bytes, start_ps, end_ps = (
        column[held] for column in (address, num_bytes, start_ps, end_ps)
    )
    order = np.argsort(address, kind="stable")  # stays come by their start
    address = address[order]
    followed = np.flatnonzero(address[1:] == address[:-1])
    before, after = order[followed], order[followed + 1]
    gaps = (start_ps[after] - end_ps[before]) / PS_PER_S
    return (
        weighed((end_ps - start_ps) / PS_PER_S, num_bytes),
        weighed(kept_spans, kept_bytes),
        weighed(np.maximum(gaps, 0.0), num_bytes[after]),
    )
