"""A client's hint to the engine about the content that a request leaves in the cache."""

from typing import NamedTuple

from kvsim.request import Request


class SessionHint(NamedTuple):
    """The session of a request.

    session: conversation that the request belongs to, or None. ends: whether it is the last request
    of the session. priority: priority of the request, lower is more urgent. pause_ps: time until
    the next request of the session, if known.
    """

    session: str | None
    ends: bool
    priority: int
    pause_ps: int | None = None


NO_HINT = SessionHint(None, False, 0)


def hint_of(request: Request) -> SessionHint:
    """The hint of a request."""
    return SessionHint(request.session, request.ends_session, request.priority, request.pause_ps)
