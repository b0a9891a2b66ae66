"""Attention of the sequences of a step: of a decode batch, and of prompt chunks."""

from bisect import bisect_right

from kvsim.step import Chunk
from kvsim.step_time.form import DecodeRun
from kvsim.step_time.kernels.curves import KernelSheet, TimePoints


class DecodeAttention:
    """Attention of a batch of one size, in ps at mean contexts `x`.

    Beyond them, the ps that each further token of context, of any sequence, takes.
    """

    def __init__(self, batch: int, sheets: list[KernelSheet], edges: list[int]) -> None:
        lines = [sheet.of(batch) for sheet in sheets]
        x = sorted({0, *edges, *(each for line in lines for each in line.x)})
        ps = [sum([line.at(each) for line in lines]) for each in x]
        x.append(2 * x[-1] + 1)
        ps.append(sum([line.at(x[-1]) for line in lines]))
        self.x = x[:-1]
        self.ps = ps[:-1]
        self.token_ps = [
            max(0, (ps[at + 1] - ps[at]) // (batch * (x[at + 1] - x[at])))
            for at in range(len(x) - 1)
        ]

    def run(self, batch: int, context_tokens: int) -> DecodeRun:
        """Successive steps, affine until the mean context comes to the next point."""
        mean = context_tokens // batch
        at = bisect_right(self.x, mean) - 1
        slope = self.token_ps[at]
        first = self.ps[at] + slope * (context_tokens - batch * self.x[at])
        steps = self.x[at + 1] - mean if at + 1 < len(self.x) else None
        return DecodeRun(first, slope * batch, steps)


class LocalSheet:
    """Decode attention over chunks of `chunk_tokens` tokens: a query at p sees p mod chunk_tokens +
    1 keys (p counts from 0).

    Of a batch, every sequence is taken to be at the mean.
    """

    def __init__(self, chunk_tokens: int, sheet: KernelSheet) -> None:
        self.chunk_tokens = chunk_tokens
        self.sheet = sheet

    def scaled(self, ppm: int) -> "LocalSheet":
        """A copy with all times multiplied by ppm / 1,000,000."""
        return LocalSheet(self.chunk_tokens, self.sheet.scaled(ppm))


class LocalDecodeAttention:
    """Attention of a batch of one size over chunks of local attention (see `LocalSheet`)."""

    def __init__(self, batch: int, local: LocalSheet) -> None:
        self._chunk = local.chunk_tokens
        self._attention = DecodeAttention(batch, [local.sheet], [])

    def run(self, batch: int, context_tokens: int) -> DecodeRun:
        """Successive steps, affine until the mean is in the next chunk at the latest."""
        before = max(0, context_tokens // batch - 1) // self._chunk * self._chunk
        seen = context_tokens - batch * before
        run = self._attention.run(batch, seen)
        left = max(1, self._chunk - seen // batch + 1)
        return DecodeRun(
            run.first_ps, run.growth_ps, left if run.steps is None else min(left, run.steps)
        )


class PrefillChunks:
    """Attention of a chunk in a step with others, per sequence.

    whole: whether it counts from the first token of the sequence on, as attention does. Else the
    chunk's own tokens alone count, as for a recurrence. local_tokens: the tokens of a chunk of
    local attention, of which a query sees its own; 0: it sees all.
    """

    def __init__(self, sheet: KernelSheet, whole: bool, local_tokens: int = 0) -> None:
        self.sheet = sheet
        self.whole = whole
        self.local_tokens = local_tokens
        self._lines: dict[int, TimePoints] = {}

    def scaled(self, ppm: int) -> "PrefillChunks":
        """A copy with all times multiplied by ppm / 1,000,000."""
        return PrefillChunks(self.sheet.scaled(ppm), self.whole, self.local_tokens)

    def chunk_ps(self, chunk: Chunk, chunks: int) -> int:
        """Time in ps of one of `chunks` chunks."""
        line = self._lines.get(chunks)
        if line is None:
            line = self._lines[chunks] = self.sheet.of(chunks)
        new, prior = chunk
        if not self.whole:
            return line.at(new) // chunks
        if not prior:
            return self._first_ps(line, new) // chunks
        between = self._first_ps(line, prior + new) - self._first_ps(line, prior)
        return max(line.ps[0], between) // chunks

    def _first_ps(self, line: TimePoints, tokens: int) -> int:
        """Time in ps of a sequence's first `tokens` tokens: its chunks of local attention one after
        another, in a kernel that starts once.
        """
        if not self.local_tokens:
            return line.at(tokens)
        chunks, rest = divmod(tokens, self.local_tokens)
        return chunks * (line.at(self.local_tokens) - line.ps[0]) + line.at(rest)
