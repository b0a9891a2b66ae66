"""Failures of replicas, as a scenario gives them."""

from pydantic import Field

from kvsim.plumbing.options import Options


class FleetFailure(Options):
    """A replica dies at a time: its cache is lost, and its requests start again elsewhere.

    at_s: time of the failure in seconds from the start. replica: number of the replica, among those
    at the start. restart_s: seconds until a new replica with an empty cache replaces it; if not
    given, none does.
    """

    at_s: float = Field(ge=0, le=1e7)
    replica: int = Field(ge=0)
    restart_s: float | None = Field(None, ge=0, le=1e7)
