"""Rectangles in time and addresses as a picture: each cell has the colour at its middle."""

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
Floats = NDArray[np.float64]


def painted(
    start: Floats,
    end: Floats,
    low: Floats,
    high: Floats,
    colour: NDArray[np.int64],
    columns: int,
    rows: int,
) -> NDArray[np.int64]:
    """(columns, rows) of colours >= 0, or NOBODY; the rows run with the addresses.

    start, end, low, high: (n,) of each rectangle, in shares of the picture; no two share a point.
    A rectangle that holds no middle of a cell is painted where the cell is empty: none is lost.
    """
    cells = np.full((columns, rows), NOBODY, dtype=np.int64)
    left, right = (_first_middle(at * columns, columns) for at in (start, end))
    bottom, top = (_first_middle(at * rows, rows) for at in (low, high))
    single = (top - bottom == 1) & (right > left)
    column, past, row, shown = left[single], right[single], bottom[single], colour[single]
    while len(column):  # one column after the other, of those that go on
        cells[column, row] = shown
        column = column + 1
        on = column < past
        column, past, row, shown = column[on], past[on], row[on], shown[on]
    for at in np.flatnonzero((top - bottom > 1) & (right > left)):
        cells[left[at] : right[at], bottom[at] : top[at]] = colour[at]
    small = np.flatnonzero(((top <= bottom) | (right <= left)) & (start < 1))
    column = np.minimum((start[small] * columns).astype(np.int64), columns - 1)
    row = np.minimum(((low[small] + high[small]) / 2 * rows).astype(np.int64), rows - 1)
    empty = cells[column, row] == NOBODY
    cells[column[empty], row[empty]] = colour[small][empty]
    return cells


def _first_middle(at: Floats, cells: int) -> NDArray[np.int64]:
    """The first cell that has its middle at or after `at`, in cells."""
    return np.clip(np.ceil(at - 0.5), 0, cells).astype(np.int64)
