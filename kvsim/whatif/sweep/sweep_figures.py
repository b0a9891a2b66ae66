"""Figures of a sweep: curves along its first numeric axis, heat maps over its first two axes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvsim.report.classes import run_line
from kvsim.report.figure import plain
from kvsim.report.measures import MEASURES, Measure
from kvsim.whatif.crowded import beside, cut_marks, room_for_ends
from kvsim.whatif.error_bars import error_bars
from kvsim.whatif.findings import HeatGrid
from kvsim.whatif.sweep.ranking import SweepSetting, best, load_keys

if TYPE_CHECKING:
    import plotly.graph_objects as go

PANELS = ("tokens_per_s", "ttft_p99", "tpot_p99", "e2e_p50")
_MOST_LINES = 8
_MOST_TEXTS = 18  # side by side, that can still be read
_WIDE = 8  # times from the least to the most, from which on an axis is logarithmic
_DECADES = 1000  # times from the least to the most, from which on only powers of ten have ticks
_BEYOND = 2.5  # times the largest mean of a panel: where a longer interval is cut off
_Line = tuple[int, Measure, list[float], list[float], dict[str, Any]]
_PANEL_PX, _ALONE_PX, _GAP_PX = 190, 320, 44


def numeric_keys(settings: Sequence[SweepSetting], keys: Sequence[str]) -> list[str]:
    """The keys with two or more values that are all numbers."""
    found = []
    for key in keys:
        values = {setting.settings[key] for setting in settings} - {None}
        if len(values) > 1 and all(type(value) in (int, float) for value in values):
            found.append(key)
    return found


def axis_key(settings: Sequence[SweepSetting], keys: Sequence[str], by: Measure) -> str | None:
    """The numeric key for the horizontal axis; None without a numeric key.

    It is the first key that changes the load, else the key that changes the measure most while all
    others are equal. The change is the mean logarithm of the largest mean over the smallest.
    """
    found = numeric_keys(settings, keys)
    loads = [key for key in found if key in load_keys(keys)]
    if len(found) < 2 or loads:
        return next(iter(loads or found), None)
    return max(found, key=lambda key: _influence(settings, key, by))


def _influence(settings: Sequence[SweepSetting], key: str, by: Measure) -> float:
    """How much the key changes the measure; 0 if no two settings differ in this key alone."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for each in settings:
        mean = _mean(each, by)
        if each.settings[key] is None or not mean or mean < 0:
            continue
        others = (f"{name}={value}" for name, value in each.settings.items() if name != key)
        groups.setdefault((each.label, *others), []).append(mean)
    ratios = [math.log(max(means) / min(means)) for means in groups.values() if len(means) > 1]
    return sum(ratios) / len(ratios) if ratios else 0.0


def curves(
    settings: Sequence[SweepSetting],
    keys: Sequence[str],
    by: Measure,
    measures: Sequence[Measure] | None = None,
) -> "go.Figure | None":
    """A panel per measure (by default those of PANELS) over the key of `axis_key`, with a line per
    allocator and setting of the other keys.

    If there are too many lines, only those of the best setting are drawn. None without a numeric
    key. If an interval is much longer than every mean, an arrow replaces its end. Means that span a
    wide range get a logarithmic axis, on which small ones differ as visibly as large ones.
    """
    from kvsim.report.panels import panels  # a text in a terminal draws none

    shown_in = [MEASURES[name] for name in PANELS] if measures is None else measures
    along = axis_key(settings, keys, by)
    if along is None:
        return None
    lines = _lines(_everywhere(settings, [along]), keys, along, by)
    figure = panels(
        [_title(each) for each in shown_in],
        panel_px=_PANEL_PX if len(shown_in) > 1 else _ALONE_PX,
        gap_px=_GAP_PX,
    )
    values = _values(settings, along)
    axis = _axis(values)
    log = axis.get("type") == "log"
    many = len(lines) if any(len(each.seeds) > 1 for each in settings) else 1
    tops = [0.0] * len(shown_in)
    bottoms = [math.inf] * len(shown_in)
    drawn = []
    for index, (name, members) in enumerate(lines.items()):
        members.sort(key=lambda setting: setting.settings[along])
        line = run_line(index)
        for row, measure in enumerate(shown_in, start=1):
            found = [(each, each.interval(measure)) for each in members]
            shown = [(each, interval) for each, interval in found if interval is not None]
            means = [interval.mean for _, interval in shown]
            widths = [interval.half_width or 0.0 for _, interval in shown]
            lows = [interval.low for _, interval in shown]
            longest = max((interval.high for _, interval in shown), default=0.0)
            tops[row - 1] = max(tops[row - 1], min(longest, _BEYOND * max(means, default=0.0)))
            bottoms[row - 1] = min([bottoms[row - 1], *means])
            places = [each.settings[along] for each, _ in shown]
            xs = beside(places, index, many, log=log) if many > 1 else places
            drawn.append((row, measure, xs, [interval.high for _, interval in shown], line))
            figure.add_scatter(
                x=xs, customdata=places,
                y=means, error_y=error_bars(means, widths, lows),
                text=[f"{each.text(measure)} {each.load}" for each, _ in shown],
                hovertemplate="%{customdata}: %{text}",
                name=plain(name), legendgroup=name, showlegend=row == 1,
                mode="lines+markers", line={**line, "width": 2},
                marker={"symbol": ["x" if each.saturated else "circle" for each, _ in shown]},
                row=row, col=1,
            )  # fmt: skip
    above = {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 1 + 22 / (figure.layout.height - 124),
        "yanchor": "bottom",
    }
    figure.update_layout(showlegend=True, legend=above, margin={"t": 72, "b": 52})
    tops = [1.08 * top or 1.0 for top in tops]
    if _mark_cut(figure, drawn, tops):
        axis["range"] = room_for_ends(values, log=log)
    for row, (bottom, top) in enumerate(zip(bottoms, tops, strict=True), start=1):
        figure.update_yaxes(**_height(bottom, top), row=row, col=1)
    figure.update_xaxes(**axis)
    figure.update_xaxes(title_text=plain(along), title_standoff=12, row=len(shown_in), col=1)
    return figure


def _height(bottom: float, top: float) -> dict[str, Any]:
    """Options of a vertical axis for means from `bottom` up to an interval that ends at `top`."""
    if not (0 < bottom < math.inf and top >= _WIDE * bottom):
        return {"range": [0, top]}
    low = bottom / 1.3
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(top)))
    steps = (1, 2, 5) if top / low < _DECADES else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(top)],
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


def _mark_cut(figure: "go.Figure", drawn: Sequence[_Line], tops: Sequence[float]) -> bool:
    """Draw arrows at intervals that end beyond their panels; returns whether there are any."""
    marked = [0] * len(tops)
    for row, measure, xs, highs, line in drawn:
        marks = cut_marks(xs, highs, tops[row - 1], measure.form, marked[row - 1])
        if marks is None:
            continue
        marked[row - 1] += 1
        for part in ("marker", "textfont"):
            marks[part] |= {"color": line["color"]}
        figure.add_scatter(**marks, showlegend=False, row=row, col=1)
    return any(marked)


def heat_grids(
    settings: Sequence[SweepSetting], keys: Sequence[str], by: Measure
) -> list[HeatGrid]:
    """The measure over the first two keys, one grid per allocator; the other keys have their best
    values. Empty with fewer than two varied keys.
    """
    moving = [key for key in keys if len(_values(settings, key)) > 1]
    if len(moving) < 2:
        return []
    across, up = moving[:2]
    settings = _everywhere(settings, moving)
    xs, ys = (_values(settings, key) for key in (across, up))
    known = [mean for each in settings if (mean := _mean(each, by)) is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    grids = []
    for label in dict.fromkeys(setting.label for setting in settings):
        members = _slice([each for each in settings if each.label == label], moving[2:], by)
        at = {(str(e.settings[across]), str(e.settings[up])): e for e in members}
        rows = [[at.get((str(x), str(y))) for x in xs] for y in ys]
        means = [[_mean(cell, by) for cell in row] for row in rows]
        cells = [
            [("" if mean is None else by.form(mean), _badness(mean, low, high, by)) for mean in row]
            for row in means
        ]
        grids.append(HeatGrid(label, across, up, list(map(str, xs)), list(map(str, ys)), cells))
    return grids


def _badness(mean: float | None, low: float, high: float, by: Measure) -> float:
    """Shade of a grid's cell: 0 for the best mean of all grids, 1 for the worst. Times are compared
    by ratio, as they may span a factor of a thousand.
    """
    if mean is None or low == high:
        return 0.0
    if by.is_time and low > 0:
        mean, low, high = math.log(mean), math.log(low), math.log(high)
    share = (mean - low) / (high - low)
    return share if by.better == "lower" else 1.0 - share


def _axis(values: Sequence[float]) -> dict[str, Any]:
    """Options of a horizontal axis for these settings.

    If there are few values, each has a tick; if they span a wide range above 0, the axis is
    logarithmic.
    """
    found = sorted(set(values))
    axis: dict[str, Any] = {}
    if found[0] > 0 and found[-1] >= _WIDE * found[0]:
        axis["type"] = "log"
    if len(found) <= _MOST_TEXTS:
        axis |= {"tickvals": found, "ticktext": [f"{each:g}" for each in found]}
    return axis


def _lines(
    settings: Sequence[SweepSetting], keys: Sequence[str], along: str, by: Measure
) -> dict[str, list[SweepSetting]]:
    """Settings grouped into lines by all keys except the key `along` the axis.

    If that makes too many lines, only one per allocator, through its best setting.
    """
    others = [key for key in keys if key != along]
    lines = _grouped(settings, others)
    if len(lines) > _MOST_LINES:
        labels = dict.fromkeys(setting.label for setting in settings)
        kept = [
            each
            for label in labels
            for each in _slice([e for e in settings if e.label == label], others, by)
        ]
        lines = _grouped(kept, [])
    return lines


def _grouped(
    settings: Sequence[SweepSetting], others: Sequence[str]
) -> dict[str, list[SweepSetting]]:
    lines: dict[str, list[SweepSetting]] = {}
    for setting in settings:
        parts = [
            f"{key.rpartition('.')[2]} {setting.settings[key]}"
            for key in others
            if setting.settings[key] is not None
        ]
        lines.setdefault(", ".join([setting.label, *parts]), []).append(setting)
    return lines


def _slice(
    settings: Sequence[SweepSetting], fixed: Sequence[str], by: Measure
) -> list[SweepSetting]:
    """The settings that have the best setting's values of the `fixed` keys."""
    top = best(settings, by, 1)
    if not top:
        return []
    held = top[0].setting.settings
    return [each for each in settings if all(each.settings[k] == held[k] for k in fixed)]


def _values(settings: Sequence[SweepSetting], key: str) -> list[Any]:
    found = dict.fromkeys(setting.settings[key] for setting in settings)
    return [value for value in found if value is not None]


def _everywhere(settings: Sequence[SweepSetting], keys: Sequence[str]) -> list[SweepSetting]:
    """The settings, where one without a value of a key (it belongs to another allocator) is
    repeated at every value of the key.
    """
    for key in keys:
        values = _values(settings, key)
        settings = [
            replace(each, settings=each.settings | {key: value})
            for each in settings
            for value in (values if each.settings[key] is None else [each.settings[key]])
        ]
    return list(settings)


def _mean(setting: SweepSetting | None, by: Measure) -> float | None:
    interval = None if setting is None else setting.interval(by)
    return None if interval is None else interval.mean


def _title(measure: Measure) -> str:
    return f"{measure.title}, s" if measure.is_time else measure.title
