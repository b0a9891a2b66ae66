"""Transfer events between two passes of an engine, for observers."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Moves:
    """Transfer events, by sequence id.

    Of a prefill engine: popped: requests with memory allocated on a decode engine; freed: requests
    with KV that has arrived; sent: (request, tokens, start_ps, end_ps) of each sending.

    Of a decode engine: preallocated: (request, tokens hit in its own cache); transferred: requests
    with received KV; resumed: retracted requests that came back from host memory.

    failed: requests that ended with an error.
    """

    popped: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    sent: list[tuple[str, int, int, int]] = field(default_factory=list)
    preallocated: list[tuple[str, int]] = field(default_factory=list)
    transferred: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
