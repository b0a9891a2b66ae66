"""What happened to transfers from one pass of an engine to the next, for whoever watches."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Moves:
    """popped, freed: of a prefill engine, requests for which the other side has room, and those
    whose KV has been read. sent: (request, tokens, start_ps, end_ps) of each sending.
    preallocated: of a decode engine, (request, tokens that its own cache had). transferred,
    resumed: requests whose KV has come, and retracted ones that came back. failed: those that ended
    with an error where memory ran out.
    """

    popped: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    sent: list[tuple[str, int, int, int]] = field(default_factory=list)
    preallocated: list[tuple[str, int]] = field(default_factory=list)
    transferred: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
