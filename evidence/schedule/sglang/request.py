"""Requests of schedules recorded from SGLang."""

from pydantic import Field

from evidence.schedule.case import CaseRequest

LARGEST_POOL = 1 << 30  # tokens


class SglangRequest(CaseRequest):
    """A recorded request. max_tokens: the limit that its client declares, by default `out`; if
    `out` is less, the request stops by itself after `out` tokens. ignore_eos: the flag of that
    name. routing_key: the header x-smg-routing-key.
    """

    max_tokens: int | None = Field(None, ge=1)
    ignore_eos: bool = False
    routing_key: str | None = None

    @property
    def declared_tokens(self) -> int:
        return self.out if self.max_tokens is None else self.max_tokens

    @property
    def routed_by(self) -> str | None:
        return self.routing_key

    @property
    def asks_for_all(self) -> bool:
        return self.ignore_eos
