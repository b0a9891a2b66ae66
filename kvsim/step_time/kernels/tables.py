"""The distilled tables of one device and engine, in which kernels are looked up by shape."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from kvsim.plumbing.errors import InputError
from kvsim.step_time.kernels.missing import NotMeasured
from kvsim.step_time.kernels.versions import version_key

SUFFIX = ".npz"
WORDS = ("kind", "dtype", "version")  # columns of words
Shape = tuple[int, ...]
Work = Callable[[Shape, float], float]


class KernelLine(NamedTuple):
    """A measured curve: times in us at ascending x. Linear between points. Beyond the last it has
    the last slope; before the first, the first time.
    """

    x: tuple[float, ...]
    us: tuple[float, ...]

    def at(self, x: float) -> float:
        """The time at x, in us."""
        last = len(self.x) - 1
        if x > self.x[last] and last:
            span = self.x[last] - self.x[last - 1]
            slope = max(0.0, (self.us[last] - self.us[last - 1]) / span)
            return self.us[last] + slope * (x - self.x[last])
        return float(np.interp(x, self.x, self.us))


class KernelFamily:
    """All curves of one kind of kernel and one dtype, by shape."""

    def __init__(self, lines: dict[Shape, KernelLine]) -> None:
        self.lines = lines
        self._shapes = np.array(sorted(lines), np.float64)

    def nearest(self, shape: Shape, equal_at: Sequence[int] = ()) -> Shape | None:
        """The measured shape with the least sum of |log ratio| to `shape`, among those equal to it
        at the indices `equal_at`; None if there is none.
        """
        if shape in self.lines:
            return shape
        shapes, wanted = self._shapes, np.array(shape, np.float64)
        for place in equal_at:
            shapes = shapes[shapes[:, place] == wanted[place]]
        if not len(shapes):
            return None
        apart = np.abs(np.log((shapes + 1) / (wanted + 1))).sum(axis=1)
        return tuple(int(size) for size in shapes[int(apart.argmin())])

    def scaled(self, shape: Shape, work: Work, equal_at: Sequence[int] = ()) -> KernelLine | None:
        """The curve of `shape`. If it was not measured: the curve of the nearest shape, times the
        ratio of their roofline work.
        """
        near = self.nearest(shape, equal_at)
        if near is None:
            return None
        line = self.lines[near]
        if near == shape:
            return line
        times = (us * work(shape, x) / work(near, x) for x, us in zip(*line, strict=True))
        return KernelLine(line.x, tuple(times))

    def sheet(self, shape: Shape, work: Work, equal_at: Sequence[int]) -> dict[int, KernelLine]:
        """Curves by batch size, which is the last size of a table's shapes; their other sizes are
        `shape`. {} if there are none.
        """
        near = self.nearest((*shape, 1), equal_at)
        if near is None:
            return {}
        found = {}
        for each, line in self.lines.items():
            if each[:-1] != near[:-1]:
                continue
            batch = each[-1]
            if each[:-1] != shape:
                wanted = (*shape, batch)
                us = (us * work(wanted, x) / work(each, x) for x, us in zip(*line, strict=True))
                line = KernelLine(line.x, tuple(us))
            found[batch] = line
        return dict(sorted(found.items()))

    def between(self, shape: Shape, work: Work) -> KernelLine:
        """The curve of a shape of two sizes, interpolated in a grid of measured shapes: log(time)
        is linear in the logarithms of the sizes.

        Outside of the grid it is scaled from the edge.
        """
        if shape in self.lines:
            return self.lines[shape]
        # Not np.unique, which imports numpy.ma: 3 % of all that a short run imports.
        sides = [np.array(sorted(set(self._shapes[:, place].tolist()))) for place in (0, 1)]
        inside = tuple(
            float(np.clip(size, side[0], side[-1])) for size, side in zip(shape, sides, strict=True)
        )
        corners, weights = self._corners(inside, sides)
        if not corners:
            near = self.scaled(shape, work)
            assert near is not None
            return near
        x = sorted({point for corner in corners for point in self.lines[corner].x})
        logs = [np.log([self.lines[corner].at(point) for point in x]) for corner in corners]
        mean = np.exp(np.average(logs, axis=0, weights=weights))
        edge = tuple(round(size) for size in inside)
        if edge != shape:
            mean = mean * [work(shape, point) / work(edge, point) for point in x]
        return KernelLine(tuple(x), tuple(map(float, mean)))

    def _corners(
        self, sizes: tuple[float, ...], sides: list[Any]
    ) -> tuple[list[Shape], list[float]]:
        """Measured corners of the grid around `sizes`, each with its weight."""
        ends = []
        for size, side in zip(sizes, sides, strict=True):
            high = int(np.searchsorted(side, size))
            low = high if side[high] == size else high - 1
            part = 0.0
            if high != low:
                part = float(np.log(size / side[low]) / np.log(side[high] / side[low]))
            ends.append(((int(side[low]), 1 - part), (int(side[high]), part)))
        found: dict[Shape, float] = {}
        for n, of_n in ends[0]:
            for k, of_k in ends[1]:
                if of_n * of_k and (n, k) in self.lines:
                    found[n, k] = found.get((n, k), 0.0) + of_n * of_k
        return list(found), list(found.values())


class KernelLookup:
    """Curves of kernels by kind, dtype and shape.

    name: of the device and engine. source: where they are from, in words. measured: whether on this
    device, and over its own link. shipped: whether they are the measured ones that ship with kvsim.
    """

    shipped = False

    def __init__(self, name: str, source: str, measured: bool) -> None:
        self.name = name
        self.source = source
        self.measured = measured
        self._left_out: list[str] = []
        self._families: dict[tuple[str, str], KernelFamily | None] = {}

    def family(self, kind: str, dtypes: Sequence[str] = ("",)) -> KernelFamily | None:
        """The curves of this kind in the first of `dtypes` that has curves; None if none has."""
        for dtype in dtypes:
            key = kind, dtype
            if key not in self._families:
                self._families[key] = self._read(*key)
            if self._families[key] is not None:
                return self._families[key]
        return None

    def required(self, kind: str, dtypes: Sequence[str] = ("",)) -> KernelFamily:
        """The curves as from `family`; InputError if there are none."""
        family = self.family(kind, dtypes)
        if family is None:
            raise NotMeasured(
                f"no {kind} was measured in {' or '.join(dtypes)}",
                where="step_time.kind",
                value=f"kernels of {self.name}",
                remedy='choose step_time.kind = "roofline", or `kvsim calibrate kernels` your own',
            )
        return family

    def left_out(self, what: str) -> None:
        """Add kernels that were measured and are not used to `source`."""
        if what not in self._left_out:
            words = ", "
            if not self._left_out:
                words = "; by fitted rooflines, since those measured here are far slower: "
            self._left_out.append(what)
            self.source += words + what

    def _read(self, kind: str, dtype: str) -> KernelFamily | None:
        raise NotImplementedError(type(self).__name__)


class KernelTables(KernelLookup):
    """Measured kernels of one device and one engine.

    version: of the engine. Each curve is taken from the newest table version up to this one, else
    from the newest of all.
    """

    def __init__(self, path: Path, version: str | None) -> None:
        super().__init__(path.stem, f"kernels measured as in {path.stem}", measured=True)
        self._wanted = version_key(version) if version else None
        try:
            with np.load(path) as arrays:
                self._words = {name: arrays[f"{name}_words"][arrays[name]] for name in WORDS}
                self._us = np.ascontiguousarray(arrays["us_bytes"].T).view(np.float32).ravel()
                self._x, self._sizes = arrays["x"], arrays["shape"]
                self._ends = np.cumsum(arrays["points"], dtype=np.int64)
                self._shape_ends = np.cumsum(arrays["sizes"], dtype=np.int64)
        except (KeyError, ValueError, BadZipFile):
            raise InputError(
                "not a table of kernels", where=str(path), remedy="run `kvsim calibrate kernels`"
            ) from None

    def dtypes(self, kind: str) -> set[str]:
        """The dtypes of which there are curves of this kind."""
        return set(self._words["dtype"][self._words["kind"] == kind].tolist())

    def _read(self, kind: str, dtype: str) -> KernelFamily | None:
        words = self._words
        rows = np.flatnonzero((words["kind"] == kind) & (words["dtype"] == dtype)).tolist()
        if not rows:
            return None
        found: dict[Shape, tuple[tuple[bool, tuple[int, ...]], KernelLine]] = {}
        ranks = {version: self._rank(version) for version in set(words["version"].tolist())}
        for row in rows:
            rank = ranks[str(words["version"][row])]
            shape = tuple(self._sizes[_span(self._shape_ends, row)].tolist())
            if shape not in found or rank > found[shape][0]:
                span = _span(self._ends, row)
                line = KernelLine(
                    tuple(map(float, self._x[span].tolist())), tuple(self._us[span].tolist())
                )
                found[shape] = rank, line
        return KernelFamily({shape: line for shape, (_, line) in found.items()})

    def _rank(self, version: str) -> tuple[bool, tuple[int, ...]]:
        """The preference of a version; the greatest is taken."""
        numbers = version_key(version)
        wanted = self._wanted
        return wanted is None or numbers[: len(wanted)] <= wanted, numbers


def _span(ends: Any, row: int) -> slice:
    """Slice of one row's numbers in the array of all rows' numbers."""
    return slice(int(ends[row - 1]) if row else 0, int(ends[row]))
