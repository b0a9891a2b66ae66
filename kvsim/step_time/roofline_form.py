"""The roofline's times as a step needs them; kvsim/step_time/roofline.py says what they are."""

from dataclasses import dataclass, replace

from kvsim.plumbing.units import FS_PER_PS
from kvsim.step import Chunk, StepShape
from kvsim.step_time.correction import Correction
from kvsim.step_time.form import DecodeRun


@dataclass(frozen=True, slots=True)
class AttentionTime:
    """Attention over one group of layers.

    context_ps: per context token of a decoding sequence; query_fs: the part of its FLOPs for each
    query, in femtoseconds. read_fs, pair_fs: of a chunk, per KV token it reads and per query-key
    pair. They are in femtoseconds since they are small, and steps with chunks are never summed in
    closed form. attention_chunk: tokens of a chunk of local attention, and a query sees its own
    chunk; None without.
    """

    window_tokens: int | None
    context_ps: int
    query_fs: int
    read_fs: int
    pair_fs: int
    attention_chunk: int | None = None

    def scaled(self, correction: Correction) -> "AttentionTime":
        """A copy with all times scaled by the correction."""
        scaled = correction.scaled
        return replace(
            self,
            context_ps=scaled(self.context_ps),
            query_fs=scaled(self.query_fs),
            read_fs=scaled(self.read_fs),
            pair_fs=scaled(self.pair_fs),
        )

    def chunk_ps(self, chunk: Chunk) -> int:
        """Time of one chunk's attention: its pairs computed or its context read."""
        new, prior = chunk
        window, local = self.window_tokens, self.attention_chunk
        if local is not None:
            pairs = _pairs_within(prior + new, local) - _pairs_within(prior, local)
            seen = new + prior % local
        elif window is None:
            pairs, seen = new * prior + new * (new + 1) // 2, prior + new
        else:
            within = max(0, min(new, window - prior))
            pairs = within * prior + within * (within + 1) // 2 + (new - within) * window
            seen = min(prior + new, window + new - 1)
        return max(pairs * self.pair_fs, seen * self.read_fs) // FS_PER_PS

    def decode_ps(self, shape: StepShape) -> int:
        """Time of the decoding sequences' attention, all queries of one as long as their mean."""
        seen = self.seen_tokens(shape.num_decode, shape.context_tokens)
        once = self.context_ps * seen
        if not shape.num_drafts:
            return once
        queries = shape.num_decode + shape.num_drafts
        return max(once, self.query_fs * seen * queries // shape.num_decode // FS_PER_PS)

    def seen_tokens(self, num_decode: int, context_tokens: int) -> int:
        """Context tokens that all decoding sequences see: capped by the window; half a chunk each
        where their mean context is beyond the first chunk.
        """
        local = self.attention_chunk
        if local is not None and context_tokens > num_decode * local:
            return num_decode * (local + 1) // 2
        if self.window_tokens is None:
            return context_tokens
        return min(context_tokens, num_decode * self.window_tokens)


def _pairs_within(tokens: int, chunk: int) -> int:
    """Query-key pairs of the first `tokens` tokens: each sees its own chunk up to itself."""
    whole, rest = divmod(tokens, chunk)
    return whole * chunk * (chunk + 1) // 2 + rest * (rest + 1) // 2


@dataclass(frozen=True, slots=True)
class RooflineForm:
    """The times of a step's parts in integer picoseconds.

    base_ps: overhead and latencies. weights_ps: reading what every step reads. experts: see
    `_expert_reads` in roofline.py. token_ps, logits_ps: computing one token, one sampled token's
    logits. state_ps: reading and writing one sequence's recurrent state. all_reduce_token_ps: per
    token. chunk_ps: per prefill chunk, prompts_ps: of a step that has some, prompt_token_ps: of
    each of their tokens, which only a correction knows of. source: why it was taken, where the
    scenario does not name it.
    """

    base_ps: int
    weights_ps: int
    experts: tuple[tuple[float, int], ...]
    token_ps: int
    logits_ps: int
    state_ps: int
    all_reduce_token_ps: int
    attention: tuple[AttentionTime, ...]
    chunk_ps: int = 0
    prompts_ps: int = 0
    prompt_token_ps: int = 0
    source: str = ""

    def sourced(self, source: str) -> "RooflineForm":
        """A copy with this source."""
        return replace(self, source=source)

    def corrected(self, correction: Correction) -> "RooflineForm":
        """The form with a correction applied."""
        scaled = correction.scaled
        return replace(
            self,
            base_ps=scaled(self.base_ps) + correction.constant_ps,
            weights_ps=scaled(self.weights_ps),
            experts=tuple((miss, scaled(ps)) for miss, ps in self.experts),
            token_ps=scaled(self.token_ps),
            logits_ps=scaled(self.logits_ps),
            state_ps=scaled(self.state_ps) + correction.sequence_ps,
            all_reduce_token_ps=scaled(self.all_reduce_token_ps) + correction.token_ps,
            attention=tuple(group.scaled(correction) for group in self.attention),
            chunk_ps=correction.chunk_ps,
            prompts_ps=correction.prompts_ps,
            prompt_token_ps=correction.prompt_token_ps,
        )

    def step_ps(self, shape: StepShape) -> int:
        """Duration of one step; 0 if nothing is computed."""
        chunks, num_decode = shape.chunks, shape.num_decode
        tokens = shape.num_tokens
        if tokens == 0:
            return 0
        sequences = len(chunks) + num_decode + shape.num_drafts
        total = self._without_attention_ps(tokens, sequences)
        if chunks:
            total += self.prompts_ps + self.chunk_ps * len(chunks)
            total += self.prompt_token_ps * (tokens - num_decode - shape.num_drafts)
        for group in self.attention:
            total += group.decode_ps(shape)
            for chunk in chunks:
                total += group.chunk_ps(chunk)
        return total

    def _without_attention_ps(self, tokens: int, sequences: int) -> int:
        """The time of a step without attention, in ps, by its tokens and sequences."""
        total = self.base_ps + self.all_reduce_token_ps * tokens + self.state_ps * sequences
        reads = self.weights_ps
        for miss, time in self.experts:
            reads += round(time * (1 - miss**tokens))
        return total + max(reads, self.token_ps * tokens + self.logits_ps * sequences)

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Decode steps in a row, affine until the mean context reaches the next window or chunk."""
        first = self._without_attention_ps(num_decode, num_decode)
        growth, steps = 0, None
        for group in self.attention:
            first += group.context_ps * group.seen_tokens(num_decode, context_tokens)
            limit = group.window_tokens or group.attention_chunk
            if limit is not None:
                room = num_decode * limit - context_tokens
                if room < 0 or (room == 0 and group.attention_chunk is None):
                    continue
                within = room // num_decode + 1
                steps = within if steps is None else min(steps, within)
            growth += group.context_ps * num_decode
        return DecodeRun(first, growth, steps)
