"""A step of a replay, parsed from a plain record."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from kvsim.backend.step import Copy, Move, TokenSpan
from kvsim.plumbing.errors import InputError


class Step(NamedTuple):
    """Copies to make, in order, then token spans to compute.

    prefixes: by span id, the tokens of spans that begin with another one's cached tokens (a prefix
    hit, a fork). Only a replay that recomputes needs them.
    """

    spans: tuple[TokenSpan, ...]
    moves: tuple[Move, ...] = ()
    prefixes: Mapping[str, Sequence[int]] = {}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """A step from {"seqs": [{"id", "tokens", "start", "blocks" | "slot" | "capacity",
        "prefix"?}], "copies": [[source, target, slots]]}; InputError on anything else.
        """
        unknown = set(record) - {"seqs", "copies"}
        if unknown:
            raise InputError("unknown key", where="step", value=sorted(unknown))
        spans, prefixes = [], {}
        for entry in record["seqs"]:
            fields = dict(entry)
            prefix = fields.pop("prefix", None)
            try:
                span = TokenSpan(**fields)
            except TypeError as error:
                raise InputError(f"no span: {error}", where="step.seqs", value=entry) from None
            spans.append(span)
            if prefix is not None:
                prefixes[span.id] = prefix
        copies = tuple(Copy(*copy) for copy in record.get("copies", ()))
        return cls(tuple(spans), copies, prefixes)
