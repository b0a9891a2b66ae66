"""The grid of steps to measure, at both edges of the tiles of GEMMs."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

TILE = 64
MOST_TOKENS = 10**9  # of one sequence, in a file of steps


class StepPlan(NamedTuple):
    """A step to measure.

    chunks: (new tokens, prior tokens) of each prefill chunk. contexts: for each decoding sequence
    the tokens it attends to, the new one included. source: name of the plan's source.
    """

    chunks: tuple[tuple[int, int], ...]
    contexts: tuple[int, ...]
    source: str = "grid"

    @property
    def kind(self) -> str:
        """The kind of the step: decode, prefill or mixed."""
        if not self.chunks:
            return "decode"
        return "mixed" if self.contexts else "prefill"

    @property
    def step_tokens(self) -> int:
        """Tokens computed in the step."""
        return sum(new for new, _ in self.chunks) + len(self.contexts)

    @property
    def cache_tokens(self) -> int:
        """KV tokens in the cache when the step is done."""
        return sum(new + prior for new, prior in self.chunks) + sum(self.contexts)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Read a step from {"chunks": [[new, prior], ...], "contexts": [...], "source"?};
        ValueError if it is none.
        """
        chunks = tuple(
            (_tokens(new, 1), _tokens(prior, 0)) for new, prior in record.get("chunks", ())
        )
        contexts = tuple(_tokens(context, 1) for context in record.get("contexts", ()))
        if not (chunks or contexts):
            raise ValueError("a step without a token")
        return cls(chunks, contexts, str(record.get("source", "held-out")))


@dataclass(frozen=True, slots=True)
class GridLimits:
    """Limits of a grid: sequences, tokens a sequence, tokens a step, tokens in the pool."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    step_tokens: int
    pool_tokens: int

    def as_dict(self) -> dict[str, Any]:
        """The limits as a dict, for a file."""
        return asdict(self)


CPU = GridLimits((1, 2, 3, 4, 6, 8, 12, 16, 24, 32), (32, 128, 512, 1024, 2048), 1024, 32768)
CPU_QUICK = GridLimits((1, 2, 4, 8, 16, 32), (32, 256, 1024), 512, 16384)
CUDA = GridLimits(
    (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256), (128, 512, 2048, 4096, 8192), 8192, 524288
)
CUDA_QUICK = GridLimits((1, 4, 16, 64, 256), (128, 1024, 4096), 2048, 262144)

# By device and whether it must be quick: how far the grid reaches, and how many rounds. The least
# CPU time of a busy machine wants many short rounds; events on a GPU hardly spread.
DESIGNS = {
    ("cpu", False): (CPU, 10),
    ("cpu", True): (CPU_QUICK, 4),
    ("cuda", False): (CUDA, 3),
    ("cuda", True): (CUDA_QUICK, 3),
}


def _tokens(value: object, least: int) -> int:
    """A count of tokens; ValueError for what is none."""
    if type(value) is not int or not least <= value <= MOST_TOKENS:
        raise ValueError(f"counts of tokens are whole numbers from {least} to {MOST_TOKENS:,}")
    return value


def grid(limits: GridLimits) -> list[StepPlan]:
    """Every step of the design that fits the limits, each once."""
    plans = [*_decode(limits), *_prefill(limits), *_chunks(limits), *_mixed(limits)]
    fitting = [
        plan
        for plan in plans
        if plan.step_tokens <= limits.step_tokens and plan.cache_tokens <= limits.pool_tokens
    ]
    return list(dict.fromkeys(fitting))


def _decode(limits: GridLimits) -> list[StepPlan]:
    plans = []
    for at, batch in enumerate(limits.batches):
        for also, context in enumerate(limits.contexts):
            # Every other step is ragged, so that the longest context differs from the mean.
            ragged = (at + also) % 2 == 1
            plans.append(StepPlan((), _spread(batch, context) if ragged else (context,) * batch))
    return plans


def _prefill(limits: GridLimits) -> list[StepPlan]:
    edges = [8, 16, 32]
    for tile in range(TILE, min(768, limits.step_tokens) + 1, TILE):
        edges += [tile, tile + 1]
    edges += range(1024, limits.step_tokens + 1, 256 if limits.step_tokens <= 4096 else 1024)
    return [StepPlan(((tokens, 0),), ()) for tokens in edges]


def _chunks(limits: GridLimits) -> list[StepPlan]:
    sizes = [size for size in (16, 64, 192, 512, 2048) if size <= limits.step_tokens]
    priors = limits.contexts[-4:]
    plans = [StepPlan(((size, prior),), ()) for size in sizes for prior in priors]
    # Two and three prompts that share a step.
    several = [(64, 64), (128, 64, 64), (256, 128), (192, 192, 96)]
    plans += [StepPlan(tuple((new, 0) for new in news), ()) for news in several]
    return plans


def _mixed(limits: GridLimits) -> list[StepPlan]:
    batches = limits.batches[1::2]
    sizes = [size for size in (16, 48, 128, 256, 448, 960, 1984) if size <= limits.step_tokens]
    contexts = limits.contexts[:4]
    plans = []
    for at, batch in enumerate(batches):
        for also, size in enumerate(sizes):
            # A Latin walk through contexts and priors: all values meet all, not all combinations.
            context = contexts[(at + also) % len(contexts)]
            prior = (0, contexts[(at + 2 * also) % len(contexts)])[(at + also) % 2]
            plans.append(StepPlan(((size, prior),), _spread(batch, context)))
    return plans


def _spread(batch: int, mean: int) -> tuple[int, ...]:
    """`batch` contexts evenly from about a half to one and a half of their mean."""
    return tuple(max(1, mean // 2 + mean * (2 * at + 1) // (2 * batch)) for at in range(batch))
