"""Error bounds of a pool's size, from start-up logs of other people's servers, each of a model, a
GPU and flags of its own (reports/startup-logs).

No number was fitted to these logs, but some were seen while the rules were made. The pool of a
server that nobody has seen may be further off.
"""

from typing import Any, NamedTuple

# Shares of the log's tokens, by engine: pools too large are above 0.
ERRORS = {
    "vllm": (
        *(0.0129, 0.0066, 0.0329, 0.0662, 0.0026, -0.0030, -0.0041, -0.0078, -0.0029, 0.0011),
        *(0.0290, -0.0152, 0.0377, 0.0024, 0.0089, 0.0107, -0.0530, 0.0556, 0.0511, 0.0000),
        *(0.0070, -0.0435, -0.0216, -0.0044, 0.0000, 0.0991, 0.0192, -0.0013, -0.0068),
    ),
    "sglang": (-0.0062, 0.0049, 0.0203, 0.0015, 0.0024, -0.0965, 0.0055),
}


class HeldOutError(NamedTuple):
    """Shares of the tokens: half of `logs` logs are within `half`, nine in ten within `most`."""

    half: float
    most: float
    logs: int

    def around(self, tokens: int) -> tuple[int, int]:
        """(low, high) tokens between which nine in ten servers' pools are."""
        return int(tokens / (1 + self.most)), int(tokens / (1 - self.most))

    def text(self, tokens: int) -> str:
        """The error bounds in one sentence."""
        low, high = self.around(tokens)
        return (
            f"Of {self.logs} logs of other people's servers half are within {self.half:.1%} and "
            f"nine in ten within {self.most:.1%}: {low:,} to {high:,} tokens. Some were seen while "
            "the rules were made."
        )

    def figures(self, tokens: int) -> dict[str, Any]:
        """The error as numbers, for JSON."""
        low, high = self.around(tokens)
        return {**self._asdict(), "tokens_low": low, "tokens_high": high}


def expected_error(engine: str) -> HeldOutError:
    """The error of an engine's pools that are sized by its flags."""
    errors = sorted(abs(error) for error in ERRORS[engine])
    count = len(errors)
    return HeldOutError(errors[count // 2], errors[min(count - 1, count * 9 // 10)], count)
