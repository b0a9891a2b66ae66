"""Times in picoseconds by tokens or sequences, straight between points."""

from bisect import bisect_right

from kvsim.step_time.correction import WHOLE_PPM


class TimePoints:
    """Times in ps at ascending integer x: linear between points, and beyond the last one."""

    def __init__(self, x: list[int], ps: list[int]) -> None:
        self.x = x
        self.ps = ps

    def at(self, x: int) -> int:
        """Time in ps at x; below the first point, the time of the first point."""
        last = len(self.x) - 1
        if x <= self.x[0] or not last:
            return self.ps[0]
        after = min(bisect_right(self.x, x), last)
        left, low = self.x[after - 1], self.ps[after - 1]
        return low + (self.ps[after] - low) * (x - left) // (self.x[after] - left)

    def scaled(self, ppm: int) -> "TimePoints":
        """A copy with all times multiplied by ppm / 1,000,000."""
        return TimePoints(self.x, [(ps * ppm + WHOLE_PPM // 2) // WHOLE_PPM for ps in self.ps])


class KernelSheet:
    """Times of a kernel by batch and by tokens of each of its sequences."""

    def __init__(self, batches: list[int], lines: list[TimePoints]) -> None:
        self.batches = batches
        self.lines = lines

    def scaled(self, ppm: int) -> "KernelSheet":
        """A copy with all times multiplied by ppm / 1,000,000."""
        return KernelSheet(self.batches, [line.scaled(ppm) for line in self.lines])

    def of(self, batch: int) -> TimePoints:
        """Times in ps of a batch of `batch` sequences, by the tokens of each sequence.

        They are interpolated between the measured batches, and proportional beyond the last.
        """
        batches, lines = self.batches, self.lines
        after = bisect_right(batches, batch)
        if after == len(batches):
            last, line = batches[-1], lines[-1]
            return TimePoints(line.x, [ps * batch // last for ps in line.ps])
        if not after:
            return lines[0]
        low, high = lines[after - 1], lines[after]
        part, span = batch - batches[after - 1], batches[after] - batches[after - 1]
        if not part:
            return low
        x = sorted({*low.x, *high.x})
        ends = [(low.at(each), high.at(each)) for each in x]
        return TimePoints(x, [first + (second - first) * part // span for first, second in ends])
