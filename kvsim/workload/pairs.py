"""Pairs of prompt and output lengths."""

from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kvsim.workload.lengths import LengthOptions
from kvsim.workload.lengths.distribution import Lengths
from kvsim.workload.random import generator
from kvsim.workload.source import TraceSource


class Pairs(Protocol):
    """Draws pairs of lengths; each call continues after the last pair drawn."""

    def draw(self, count: int) -> tuple[Lengths, Lengths]:
        """(prompts, outputs), `count` each."""
        ...


class RecordedPairs(TraceSource):
    """Pairs of a trace or a file of lengths, which preserve the correlation of prompt and output.

    order: drawn with replacement ("resample"), or in file order, repeated ("file").
    """

    order: Literal["resample", "file"] = "resample"

    def open(self, seed: int, base: Path) -> Pairs:
        """Read the file once; returns a source of pairs."""
        rows = self.read(self.file(base)).rows
        prompts = np.array([row.prompt_tokens for row in rows], dtype=np.int64)
        outputs = np.array([row.output_tokens for row in rows], dtype=np.int64)
        return _Recorded(prompts, outputs, None if self.order == "file" else seed)


class _Recorded:
    def __init__(self, prompts: Lengths, outputs: Lengths, seed: int | None) -> None:
        self._prompts, self._outputs = prompts, outputs
        self._rng = None if seed is None else generator(seed, "pairs")
        self._next = 0

    def draw(self, count: int) -> tuple[Lengths, Lengths]:
        if self._rng is None:
            taken = np.arange(self._next, self._next + count) % len(self._prompts)
            self._next += count
        else:
            taken = self._rng.integers(len(self._prompts), size=count)
        return self._prompts[taken], self._outputs[taken]


class DistributedPairs:
    """Prompt and output lengths, each from its own distribution, correlated by a normal copula.

    correlation: of the copula's normals; the rank correlation is 6 / pi * asin(correlation / 2).
    Each side is drawn on its own and only reordered, so any distribution will do.
    """

    def __init__(
        self,
        prompt: LengthOptions,
        output: LengthOptions,
        correlation: float,
        seed: int,
        base: Path,
    ) -> None:
        self._prompt, self._output, self._correlation = prompt, output, correlation
        self._base = base
        self._prompt_rng = generator(seed, "prompt")
        self._output_rng = generator(seed, "output")
        self._pairing_rng = generator(seed, "pairing")

    def draw(self, count: int) -> tuple[Lengths, Lengths]:
        """(prompts, outputs), `count` each."""
        prompts = self._prompt.draw(count, self._prompt_rng, self._base)
        outputs = self._output.draw(count, self._output_rng, self._base)
        if not self._correlation:
            return prompts, outputs
        first = self._pairing_rng.standard_normal(count)
        other = self._pairing_rng.standard_normal(count)
        second = self._correlation * first + np.sqrt(1 - self._correlation**2) * other
        return _ranked(prompts, first), _ranked(outputs, second)


def _ranked(values: Lengths, by: NDArray[np.float64]) -> Lengths:
    """`values` reordered to have the same rank order as `by`."""
    placed = np.empty_like(values)
    placed[np.argsort(by, kind="stable")] = np.sort(values)
    return placed
