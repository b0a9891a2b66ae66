"""Events of transfers between two passes of an engine, for observers."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Moves:
    """popped: requests of a prefill engine that the other side has room for; freed: those with KV
    that was read.

    sent: (request, tokens, start_ps, end_ps) of each sending. preallocated: of a decode engine,
    (request, tokens that its own cache had). transferred: requests that received their KV; resumed:
    retracted ones that came back. failed: those that ended with an error where memory ran out.
    """

    popped: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    sent: list[tuple[str, int, int, int]] = field(default_factory=list)
    preallocated: list[tuple[str, int]] = field(default_factory=list)
    transferred: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
