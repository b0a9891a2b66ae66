"""A step's time as the sum of its kernels', in integer picoseconds: the code that runs in every
simulated step.

`KernelSteps` holds what kvsim/step_time/kernels/compose.py put together. Everything is straight
between points, so that decode steps of an unchanged batch sum in closed form.
"""

from bisect import bisect_left

from kvsim.step import StepShape
from kvsim.step_time.correction import WHOLE_PPM, Correction
from kvsim.step_time.form import DecodeRun
from kvsim.step_time.kernels.curves import KernelSheet, TimePoints
from kvsim.step_time.kernels.sequence_attention import (
    DecodeAttention,
    LocalDecodeAttention,
    LocalSheet,
    PrefillChunks,
)


class HostTime:
    """The host's time in ps: for every step, each of its sequences, and a step with prompts.

    chunk_ps, prompt_token_ps: for each prompt chunk and prompt token; only a correction sets these.
    launch_ps, prompt_launch_ps: time to launch the kernels of a decode step, and of a step with
    prompts. The kernels take at least this time.
    """

    def __init__(
        self,
        step_ps: int,
        sequence_ps: int,
        prompts_ps: int,
        chunk_ps: int = 0,
        prompt_token_ps: int = 0,
    ) -> None:
        self.step_ps = step_ps
        self.sequence_ps = sequence_ps
        self.prompts_ps = prompts_ps
        self.chunk_ps = chunk_ps
        self.prompt_token_ps = prompt_token_ps
        self.launch_ps = 0
        self.prompt_launch_ps = 0


class MeasuredLimits:
    """Largest measured sizes: tokens of a step, sequences, and tokens of a sequence."""

    def __init__(self, tokens: int, sequences: int, context_tokens: int) -> None:
        self.tokens = tokens
        self.sequences = sequences
        self.context_tokens = context_tokens


class KernelSteps:
    """Step times of one model on one GPU of its tensor parallel group.

    tokens: everything but attention and head, by tokens of the step. head: by sampled sequences.
    states: recurrences by decoding sequences. decode, prefill: attention. local: decode attention
    of layers with chunks. token_ps: time of each token, set by a correction alone. measured:
    whether the kernels were measured on this device. source: the tables, in words. prompts_ppm:
    factor on steps that compute prompts, in millionths. served: see `HostCost`; empty where nothing
    was judged, as with tables or corrections of a user. graph_sizes: batches of which CUDA graphs
    were captured; a decode step fills the next one up.
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
        local: list[LocalSheet] | None = None,
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
        self.local = local or []
        self.served = ""
        self.graph_sizes: tuple[int, ...] = ()
        self._fixed: dict[int, int] = {}
        self._attention: dict[int, DecodeAttention] = {}
        self._local: dict[int, list[LocalDecodeAttention]] = {}

    def corrected(self, correction: Correction) -> "KernelSteps":
        """The form with a correction applied."""
        ppm, host = correction.scale_ppm, self.host
        found = KernelSteps(
            self.tokens.scaled(ppm),
            self.head.scaled(ppm),
            None if self.states is None else self.states.scaled(ppm),
            [sheet.scaled(ppm) for sheet in self.decode],
            [each.scaled(ppm) for each in self.prefill],
            HostTime(
                correction.scaled(host.step_ps) + correction.constant_ps,
                correction.scaled(host.sequence_ps) + correction.sequence_ps,
                correction.scaled(host.prompts_ps) + correction.prompts_ps,
                correction.scaled(host.chunk_ps) + correction.chunk_ps,
                correction.scaled(host.prompt_token_ps) + correction.prompt_token_ps,
            ),
            self.limits,
            correction.token_ps,
            self.measured,
            self.source,
            self.prompts_ppm,
            [each.scaled(ppm) for each in self.local],
        )
        found.graph_sizes = self.graph_sizes
        found.host.launch_ps = correction.scaled(host.launch_ps)
        found.host.prompt_launch_ps = max(
            0, correction.scaled(host.prompt_launch_ps) + correction.prompt_launch_ps
        )
        return found

    def shortest_ps(self) -> int:
        """Time in ps of the shortest step: one sequence of one token."""
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
        if chunks and total < host.prompt_launch_ps:
            total = host.prompt_launch_ps
        total += host.step_ps + host.sequence_ps * sequences
        if chunks:
            total += host.prompts_ps + host.chunk_ps * len(chunks)
            total += host.prompt_token_ps * (tokens - batch - shape.num_drafts)
            if self.prompts_ppm != WHOLE_PPM:
                total = total * self.prompts_ppm // WHOLE_PPM
        return total

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Decode steps in a row, affine until the mean context comes to the next point or chunk."""
        first_ps = self._decode_ps(num_decode)
        growth_ps, steps = 0, None
        for run in self._attention_runs(num_decode, context_tokens):
            first_ps += run.first_ps
            growth_ps += run.growth_ps
            if run.steps is not None:
                steps = run.steps if steps is None else min(steps, run.steps)
        return DecodeRun(first_ps, growth_ps, steps)

    def outside_domain(self, shape: StepShape) -> bool:
        """Whether more tokens, sequences or context are computed than were measured."""
        limits = self.limits
        if shape.num_tokens > limits.tokens or shape.num_decode > limits.sequences:
            return True
        if shape.num_decode and shape.context_tokens // shape.num_decode >= limits.context_tokens:
            return True
        return any(new + prior > limits.context_tokens for new, prior in shape.chunks)

    def _decode_ps(self, batch: int) -> int:
        """Time in ps of a decode step of `batch` sequences, without attention."""
        fixed = self._fixed.get(batch)
        if fixed is None:
            fixed = self.tokens.at(self._computed(batch)) + self.head.at(batch)
            fixed += self.host.step_ps
            if self.states is not None:
                fixed += self.states.at(batch)
            if self.host.launch_ps:
                fixed = max(fixed, self.host.launch_ps)
            fixed += (self.token_ps + self.host.sequence_ps) * batch
            self._fixed[batch] = fixed
            self._attention[batch] = DecodeAttention(
                batch, self.decode, [self.limits.context_tokens]
            )
            self._local[batch] = [LocalDecodeAttention(batch, each) for each in self.local]
        return fixed

    def _computed(self, batch: int) -> int:
        """Sequences that a decode step computes, the padding of its CUDA graph included."""
        sizes = self.graph_sizes
        at = bisect_left(sizes, batch)
        return sizes[at] if at < len(sizes) else batch

    def _attention_runs(self, batch: int, context_tokens: int) -> list[DecodeRun]:
        """Attention of successive steps, by kind of layer."""
        if batch not in self._attention:
            self._decode_ps(batch)
        whole = self._attention[batch].run(batch, context_tokens)
        return [whole, *[local.run(batch, context_tokens) for local in self._local[batch]]]

    def _attention_ps(self, batch: int, context_tokens: int) -> int:
        return sum([run.first_ps for run in self._attention_runs(batch, context_tokens)])
