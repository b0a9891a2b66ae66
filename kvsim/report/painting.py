"""Rasterise rectangles in time and addresses: a cell gets the colour at its centre."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
Floats = NDArray[np.float64]


class Rectangles(NamedTuple):
    """n rectangles as (n,) arrays. start, end, low, high: sides as fractions of the picture.
    colour: >= 0.
    """

    start: Floats
    end: Floats
    low: Floats
    high: Floats
    colour: NDArray[np.int64]


def painted(parts: Iterable[Rectangles], columns: int, rows: int) -> NDArray[np.int64]:
    """(columns, rows) colours >= 0, or NOBODY for an empty cell. Rows run with the addresses.

    parts: batches of rectangles, which do not overlap. A rectangle that contains no cell's centre
    is still painted into the nearest cell if that cell is empty.
    """
    cells = np.full((columns, rows), NOBODY, dtype=np.int64)
    small = cells.copy()  # what is painted where the cell stays empty, the last of several
    for each in parts:
        _paint(each, cells, small)
    return np.where(cells == NOBODY, small, cells)


def _paint(each: Rectangles, cells: NDArray[np.int64], small: NDArray[np.int64]) -> None:
    """Paint rectangles into `cells`; those that contain no cell's centre into `small`."""
    columns, rows = cells.shape
    left, right = (_first_middle(at, columns) for at in (each.start, each.end))
    bottom, top = (_first_middle(at, rows) for at in (each.low, each.high))
    wide, height = right > left, top - bottom
    single = (height == 1) & wide
    column, past, row, shown = left[single], right[single], bottom[single], each.colour[single]
    while len(column):  # one column after the other, of those that go on
        cells[column, row] = shown
        column = column + 1
        on = column < past
        column, past, row, shown = column[on], past[on], row[on], shown[on]
    for at in np.flatnonzero((height > 1) & wide):
        cells[left[at] : right[at], bottom[at] : top[at]] = each.colour[at]
    lost = np.flatnonzero(((height <= 0) | ~wide) & (each.start < 1))
    column = np.minimum((each.start[lost] * columns).astype(np.int64), columns - 1)
    middle = (each.low[lost] + each.high[lost]) / 2
    row = np.minimum((middle * rows).astype(np.int64), rows - 1)
    small[column, row] = each.colour[lost]


def _first_middle(at: Floats, cells: int) -> NDArray[np.int64]:
    """Index of the first of `cells` cells with its centre at or after `at`, a fraction of the
    picture.
    """
    return np.clip(np.ceil(at * cells - 0.5), 0, cells).astype(np.int64)
