"""A step's time as the sum of its kernels', in integer picoseconds; the hot part.

`Steps` holds what kvsim/step_time/kernels/layers.py put together. Everything is straight between
points, so that decode steps of an unchanged batch sum in closed form.
"""

from bisect import bisect_right

from kvsim.step import Chunk, StepShape
from kvsim.step_time.correction import WHOLE_PPM, Correction
from kvsim.step_time.form import DecodeRun


class TimePoints:
    """Times in ps at ascending whole x, straight in between and on at the last slope."""

    def __init__(self, x: list[int], ps: list[int]) -> None:
        self.x = x
        self.ps = ps

    def at(self, x: int) -> int:
        """The time at x; before the first point as at it."""
        last = len(self.x) - 1
        if x <= self.x[0] or not last:
            return self.ps[0]
        after = min(bisect_right(self.x, x), last)
        left, low = self.x[after - 1], self.ps[after - 1]
        return low + (self.ps[after] - low) * (x - left) // (self.x[after] - left)

    def scaled(self, ppm: int) -> "TimePoints":
        """The same at another speed."""
        return TimePoints(self.x, [(ps * ppm + WHOLE_PPM // 2) // WHOLE_PPM for ps in self.ps])


class KernelSheet:
    """Times of a kernel by batch and by tokens of each of its sequences."""

    def __init__(self, batches: list[int], lines: list[TimePoints]) -> None:
        self.batches = batches
        self.lines = lines

    def scaled(self, ppm: int) -> "KernelSheet":
        """The same at another speed."""
        return KernelSheet(self.batches, [line.scaled(ppm) for line in self.lines])

    def of(self, batch: int) -> TimePoints:
        """The times of so many sequences by the tokens of each: between the measured batches around
        it, beyond the last in proportion.
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


class DecodeAttention:
    """Attention of a batch of one size, in ps at mean contexts `x`, and the ps that each further
    token of context, of any sequence, takes from there on.
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


class PrefillChunks:
    """Attention of a chunk beside others, per sequence.

    whole: whether it counts from the first token of the sequence on, as attention does, or the
    chunk's own tokens alone, as a recurrence does.
    """

    def __init__(self, sheet: KernelSheet, whole: bool) -> None:
        self.sheet = sheet
        self.whole = whole
        self._lines: dict[int, TimePoints] = {}

    def scaled(self, ppm: int) -> "PrefillChunks":
        """The same at another speed."""
        return PrefillChunks(self.sheet.scaled(ppm), self.whole)

    def chunk_ps(self, chunk: Chunk, chunks: int) -> int:
        """The time of one of so many chunks."""
        line = self._lines.get(chunks)
        if line is None:
            line = self._lines[chunks] = self.sheet.of(chunks)
        new, prior = chunk
        if not self.whole or not prior:
            return line.at(new) // chunks
        return max(line.ps[0], line.at(prior + new) - line.at(prior)) // chunks


class HostTime:
    """What the host adds, in ps: to every step, for each of its sequences, where it computes
    prompts, and for each of their chunks, which only a correction knows of.
    """

    def __init__(self, step_ps: int, sequence_ps: int, prompts_ps: int, chunk_ps: int = 0) -> None:
        self.step_ps = step_ps
        self.sequence_ps = sequence_ps
        self.prompts_ps = prompts_ps
        self.chunk_ps = chunk_ps


class MeasuredLimits:
    """The measured ranges: tokens of a step, sequences, and tokens of a sequence."""

    def __init__(self, tokens: int, sequences: int, context_tokens: int) -> None:
        self.tokens = tokens
        self.sequences = sequences
        self.context_tokens = context_tokens


class KernelSteps:
    """Steps of one model on one GPU of its group.

    tokens: everything but attention and head, by tokens of the step; head: by sampled sequences;
    states: recurrences by decoding sequences; decode, prefill: attention. token_ps: of each token,
    which only a correction knows of. measured: whether the kernels were, on this device. source:
    the tables, in words. prompts_ppm: of steps that compute prompts, a millionth as much is 1.
    served: see `HostCost`; empty where nothing was judged, as with tables or corrections of a user.
    """

    def __init__(
        self,
        tokens: TimePoints,
        head: TimePoints,
        states: TimePoints | None,
        decode: list[KernelSheet],
        prefill: list[PrefillChunks],
        host: HostTime,
        limits: MeasuredLimits,
        token_ps: int = 0,
        measured: bool = True,
        source: str = "",
        prompts_ppm: int = WHOLE_PPM,
    ) -> None:
        self.tokens = tokens
        self.head = head
        self.states = states
        self.decode = decode
        self.prefill = prefill
        self.host = host
        self.limits = limits
        self.token_ps = token_ps
        self.measured = measured
        self.source = source
        self.prompts_ppm = prompts_ppm
        self.served = ""
        self._fixed: dict[int, int] = {}
        self._attention: dict[int, DecodeAttention] = {}

    def corrected(self, correction: Correction) -> "KernelSteps":
        """The form with a correction applied."""
        ppm, host = correction.scale_ppm, self.host
        return KernelSteps(
            self.tokens.scaled(ppm),
            self.head.scaled(ppm),
            None if self.states is None else self.states.scaled(ppm),
            [sheet.scaled(ppm) for sheet in self.decode],
            [each.scaled(ppm) for each in self.prefill],
            HostTime(
                correction.scaled(host.step_ps) + correction.constant_ps,
                correction.scaled(host.sequence_ps),
                correction.scaled(host.prompts_ps),
                correction.scaled(host.chunk_ps) + correction.chunk_ps,
            ),
            self.limits,
            correction.token_ps,
            self.measured,
            self.source,
            self.prompts_ppm,
        )

    def shortest_ps(self) -> int:
        """The shortest step: one sequence of one token."""
        return self.step_ps(StepShape((), 1, 1))

    def step_ps(self, shape: StepShape) -> int:
        """Duration of one step; 0 if nothing is computed."""
        chunks, batch = shape.chunks, shape.num_decode
        if not chunks:
            if not batch:
                return 0
            if not shape.num_drafts:
                return self._decode_ps(batch) + self._attention_ps(batch, shape.context_tokens)
        tokens, sequences = shape.num_tokens, batch + len(chunks)
        if not tokens:
            return 0
        total = self.tokens.at(tokens) + self.head.at(sequences + shape.num_drafts)
        total += self.token_ps * tokens
        if batch:
            total += self._attention_ps(batch, shape.context_tokens)
            if self.states is not None:
                total += self.states.at(batch)
        for part in self.prefill:
            for chunk in chunks:
                total += part.chunk_ps(chunk, len(chunks))
        host = self.host
        total += host.step_ps + host.sequence_ps * sequences
        if chunks:
            total += host.prompts_ps + host.chunk_ps * len(chunks)
            if self.prompts_ppm != WHOLE_PPM:
                total = total * self.prompts_ppm // WHOLE_PPM
        return total

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Affine until the mean context comes to the next point."""
        fixed_ps = self._decode_ps(num_decode)
        attention = self._attention[num_decode]
        mean = context_tokens // num_decode
        at = bisect_right(attention.x, mean) - 1
        slope = attention.token_ps[at]
        first = attention.ps[at] + slope * (context_tokens - num_decode * attention.x[at])
        steps = attention.x[at + 1] - mean if at + 1 < len(attention.x) else None
        return DecodeRun(fixed_ps + first, slope * num_decode, steps)

    def outside_domain(self, shape: StepShape) -> bool:
        """Whether more tokens, sequences or context are computed than were measured."""
        limits = self.limits
        if shape.num_tokens > limits.tokens or shape.num_decode > limits.sequences:
            return True
        if shape.num_decode and shape.context_tokens // shape.num_decode >= limits.context_tokens:
            return True
        return any(new + prior > limits.context_tokens for new, prior in shape.chunks)

    def _decode_ps(self, batch: int) -> int:
        """A decode step of so many sequences, but for attention."""
        fixed = self._fixed.get(batch)
        if fixed is None:
            fixed = self.tokens.at(batch) + self.head.at(batch) + self.token_ps * batch
            fixed += self.host.step_ps + self.host.sequence_ps * batch
            if self.states is not None:
                fixed += self.states.at(batch)
            self._fixed[batch] = fixed
            self._attention[batch] = DecodeAttention(
                batch, self.decode, [self.limits.context_tokens]
            )
        return fixed

    def _attention_ps(self, batch: int, context_tokens: int) -> int:
        attention = self._attention.get(batch)
        if attention is None:
            self._decode_ps(batch)
            attention = self._attention[batch]
        at = bisect_right(attention.x, context_tokens // batch) - 1
        beyond = context_tokens - batch * attention.x[at]
        return attention.ps[at] + attention.token_ps[at] * beyond
