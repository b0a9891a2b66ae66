"""Checkpoints that store experts, mixers and the rest by different schemes."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.model.hf.quantization.kinds import kind_of
from kvsim.model.weights import DTYPE_BYTES, WeightFormat
from kvsim.plumbing.errors import InputError

EVERY = ("linear", "re:.*", "*")
_LAYER = re.compile(r"layers\.(\d+)\.")


class Share(NamedTuple):
    """Modules with one scheme. target: modules by name, pattern or class; bits: bits of each
    parameter.
    """

    target: str
    bits: float


def by_kind(
    shares: Sequence[Share], dtype: str, layers: int, at: str, *, listed: bool = False
) -> WeightFormat:
    """The bits of routed experts, of mixers and of other modules. listed: modules without a share
    stay in the model's dtype. Raises InputError if one kind has several schemes in one layer.
    """
    plain = 8 * DTYPE_BYTES[dtype]
    rest = {share.bits for share in shares if share.target.lower() in EVERY}
    found: dict[str, set[float]] = {}
    seen: dict[str, set[str]] = {}
    for share in shares:
        if share.target.lower() not in EVERY:
            kind = kind_of(share.target)
            found.setdefault(kind, set()).add(share.bits)
            number = _LAYER.search(share.target)
            seen.setdefault(kind, set()).add(number[1] if number else "")
    if len(rest) > 1 or any(len(bits) > 1 for bits in found.values()):
        raise InputError(
            "modules of one kind are stored by several schemes",
            where=at,
            value=", ".join(sorted({f"{share.bits:g} bits" for share in shares})),
            remedy="drop the table and set weight_bytes_per_param in [model]",
        )
    default = rest.pop() if rest else plain

    def bits(kind: str) -> float:
        if kind not in found:
            return default
        whole = next(iter(found[kind]))
        if not listed or "" in seen[kind]:
            return whole
        share = min(1.0, len(seen[kind]) / layers)
        return share * whole + (1 - share) * default

    return WeightFormat(bits("linear"), bits("expert"), plain, mixer_bits=bits("mixer"))
