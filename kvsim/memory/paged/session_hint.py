"""What a client may tell an engine with a request about the content that the request leaves."""

from typing import NamedTuple

from kvsim.request import Request


class SessionHint(NamedTuple):
    """session: the conversation that the request belongs to; None: none. ends: it is the last one
    of it. priority: of the request, lower is more urgent. pause_ps: until the next one of the
    session, where that is known.
    """

    session: str | None
    ends: bool
    priority: int
    pause_ps: int | None = None


NO_HINT = SessionHint(None, False, 0)


def hint_of(request: Request) -> SessionHint:
    """What a request tells."""
    return SessionHint(request.session, request.ends_session, request.priority, request.pause_ps)
