"""Step times of Dynamo's mocker: polynomials of no named GPU, for a comparison with its replays."""

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.step import StepShape
from kvsim.step_time.form import DecodeRun
from kvsim.step_time.options import Hardware, StepTimeOptions

KNOTS = 256  # stretches of the pool within which the decode part is a straight line


class DynamoMocker(StepTimeOptions):
    """The default timing of the mocker engines of ai-dynamo-runtime 1.6.1 (perf_model.rs).

    A step takes the prefill part and then the decode part, in ms: 4.209989e-7 T^2 + 0.01518344 T
    + 16.50142 for T prompt tokens; 5.74 + 54.01 u - 25.74 u^2 where tokens are sampled, for
    contexts that fill the share u of the pool. The decode part is interpolated between 257 points
    of u, within 0.1 us. A chunk that does not end its prompt has the decode part here, too.
    """

    def build(self, hardware: Hardware) -> "DynamoMockerForm":
        if not hardware.pool_tokens:
            raise InputError(
                "step times of Dynamo's mocker depend on the size of the KV pool",
                where="step_time.kind",
                value="dynamo-mocker",
                remedy="use it in a scenario, which gives the pool",
            )
        return DynamoMockerForm(hardware.pool_tokens)


class DynamoMockerForm:
    """The mocker's polynomials, see `DynamoMocker`. pool_tokens: tokens of the KV pool."""

    def __init__(self, pool_tokens: int) -> None:
        self._pool_tokens = pool_tokens
        self._starts = [-(-pool_tokens * knot // KNOTS) for knot in range(KNOTS + 1)]
        self._starts_ps = [_decode_ps(start / pool_tokens) for start in self._starts]

    def step_ps(self, shape: StepShape) -> int:
        """Duration of one step; 0 if nothing is computed."""
        prefill = shape.prefill_tokens
        if not prefill and not shape.num_decode:
            return 0
        context = shape.context_tokens + shape.prefill_context_tokens
        ps = self._line(context)[0]
        if prefill:
            ps += round((4.209989e-07 * prefill**2 + 1.518344e-02 * prefill + 16.50142) * PS_PER_MS)
        return ps

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Successive decode steps, affine until the contexts reach the next of the 257 points."""
        first, slope, end = self._line(context_tokens)
        steps = None if end is None else (end - 1 - context_tokens) // max(1, num_decode) + 1
        return DecodeRun(first, slope * num_decode, steps)

    def _line(self, context: int) -> tuple[int, int, int | None]:
        """The linear piece of the decode time at `context` tokens: its value, its growth a token,
        and the tokens at which it ends; None: never.
        """
        if context >= self._pool_tokens:
            return self._starts_ps[-1], 0, None
        at = context * KNOTS // self._pool_tokens
        if self._starts[at] == self._starts[at + 1]:  # a pool of fewer tokens than points
            return _decode_ps(context / self._pool_tokens), 0, context + 1
        start, end = self._starts[at], self._starts[at + 1]
        slope = (self._starts_ps[at + 1] - self._starts_ps[at]) // (end - start)
        return self._starts_ps[at] + slope * (context - start), slope, end


def _decode_ps(share: float) -> int:
    return round((5.74 + 54.01 * share - 25.74 * share**2) * PS_PER_MS)
