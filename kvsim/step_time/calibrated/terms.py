"""The regressors in addition to g(T): from samples to columns, and from coefficients to `Terms`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.step_time.calibrated.formula import Terms, longest_excess
from kvsim.step_time.calibrated.samples import Kind, Sample, kind_of

Floats = NDArray[np.float64]


_BY_MODE = ("decode_seq_ps", "context_token_ps", "longest_excess_token_ps")
_PREFILL = ("attention_pair_ps", "prefill_context_token_ps")


class Steps(NamedTuple):
    """The samples as arrays of length n.

    group: which samples share a shape (their chunks and their count of decode sequences), from 0.
    """

    tokens: NDArray[np.int64]
    decode_seqs: Floats
    context: Floats
    excess: Floats
    pairs: Floats
    prefill_context: Floats
    prefill_tokens: Floats
    ps: Floats
    kinds: tuple[Kind, ...]
    group: NDArray[np.int64]
    knows_longest: bool

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Steps":
        """The columns of a non-empty list of samples."""
        shapes = [sample.shape for sample in samples]
        groups: dict[object, int] = {}
        group = [groups.setdefault((s.chunks, s.num_decode), len(groups)) for s in shapes]
        decoding = [s for s in shapes if s.num_decode]
        return cls(
            tokens=np.array([s.num_decode + s.prefill_tokens for s in shapes]),
            decode_seqs=np.array([float(s.num_decode) for s in shapes]),
            context=np.array([float(s.context_tokens) for s in shapes]),
            excess=np.array([float(longest_excess(s)) for s in shapes]),
            pairs=np.array([float(s.attention_pairs) for s in shapes]),
            prefill_context=np.array([float(s.prefill_context_tokens) for s in shapes]),
            prefill_tokens=np.array([float(s.prefill_tokens) for s in shapes]),
            ps=np.array([sample.seconds * PS_PER_S for sample in samples]),
            kinds=tuple(kind_of(s) for s in shapes),
            group=np.array(group),
            knows_longest=all(s.longest_context_tokens for s in decoding) and bool(decoding),
        )

    def columns(self, *, with_longest: bool) -> tuple[Floats, tuple[tuple[str, ...], ...]]:
        """Regressors [n, p], and for each the fields of `Terms` its coefficient goes to.

        Pure and mixed steps have coefficients of their own if both were measured; otherwise the one
        that was serves both.
        """
        mixed = np.array([kind == "mixed" for kind in self.kinds])
        pure = np.array([kind == "decode" for kind in self.kinds])
        columns: list[Floats] = []
        fields: list[tuple[str, ...]] = []
        features = (self.decode_seqs, self.context, self.excess)
        for name, feature in zip(_BY_MODE, features, strict=True):
            if name == "longest_excess_token_ps" and not with_longest:
                continue
            mixed_name = name.removesuffix("_ps") + "_mixed_ps"
            if mixed.any() and pure.any():
                columns += [feature * pure, feature * mixed]
                fields += [(name,), (mixed_name,)]
            else:
                columns.append(feature)
                fields.append((name, mixed_name))
        # Of prompts that fit one step the tokens read are those computed: one column twice.
        several = bool((self.prefill_context > self.prefill_tokens).any())
        columns += [self.pairs, self.prefill_context * several]
        fields += [(name,) for name in _PREFILL]
        return np.column_stack(columns), tuple(fields)


def build_terms(coefficients: Floats, fields: tuple[tuple[str, ...], ...]) -> Terms:
    """Integer terms from the coefficients [p] of `Steps.columns`, in ps."""
    values: dict[str, int] = {}
    for coefficient, names in zip(coefficients, fields, strict=True):
        values |= dict.fromkeys(names, round(float(coefficient)))
    return Terms(**values)
