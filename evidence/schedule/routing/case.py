"""A recorded run of a router as input: settings, workers, and the events it received in order."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, field_validator

from evidence.schedule.recording import RecordedCase
from evidence.schedule.rows import Row
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.places import standing_at

MOST_WORKERS = 4096
Pieces = list[tuple[str, Annotated[int, Field(ge=0, le=1 << 24)]]]

REPLAYS: dict[str, str] = {
    "round_robin": "evidence.schedule.routing.gateway:decided",
    "cache_aware": "evidence.schedule.routing.gateway:decided",
    "power_of_two": "evidence.schedule.routing.draws:drawn",
    "random": "evidence.schedule.routing.draws:drawn",
    "dynamo_kv": "evidence.schedule.routing.dynamo:decided",
    "llm_d_epp": "evidence.schedule.routing.picker:decided",
    "vllm_dp_lb": "evidence.schedule.routing.ranks:vllm",
    "vllm_dp_coordinator": "evidence.schedule.routing.published:published",
    "sglang_dp": "evidence.schedule.routing.ranks:sglang",
}


class RoutingEvent(Options):
    """One event at the router; each kind has further keys besides `event` and `id`."""

    event: str
    id: str = ""
    prompt: Pieces = Field(default_factory=list)
    seconds: float = Field(0.0, ge=0)
    rank: int | None = Field(None, ge=0)
    time: float = Field(0.0, ge=0)
    tokens: int | list[int] = 0
    ranks: list[tuple[float, int, int, int]] = Field(default_factory=list)
    counts: list[tuple[int, int, float]] = Field(default_factory=list)
    waiting: int | list[int] = Field(default_factory=list)
    running: int = 0
    kv: float | list[float] = Field(default_factory=list)
    ms: float = 0.0
    step: int = 0
    of: str = ""
    blocks: tuple[int, int] = (0, 0)
    times: int = Field(0, ge=0)


class RoutingCase(RecordedCase):
    """Requests and reports in the order in which the router received them (see
    reports/schedules/README.md).

    settings: the router's. workers: number of workers to choose from.
    """

    recognised_by: ClassVar[str] = "policy"

    policy: str
    settings: dict[str, Any] = Field(default_factory=dict)
    workers: int = Field(ge=1, le=MOST_WORKERS)
    events: tuple[RoutingEvent, ...]
    block_size: int = Field(16, ge=1)
    max_num_batched_tokens: int | None = None
    total_kv_blocks: int | None = None
    until_ms: float | None = None

    @field_validator("policy")
    @classmethod
    def _is_known(cls, policy: str) -> str:
        if policy not in REPLAYS:
            raise InputError(
                "no recorded router of this policy",
                where="policy",
                value=policy,
                remedy=f"known: {', '.join(REPLAYS)}",
            )
        return policy

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return "policy" in table and "events" in table

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        return expectation.get("decisions")

    def simulated(self, recorded: list[Row]) -> list[Row]:
        replay = standing_at(REPLAYS[self.policy])
        return cast("Callable[[RoutingCase, list[Row]], list[Row]]", replay)(self, recorded)

    def unknown(self, event: RoutingEvent) -> InputError:
        """The InputError for an event that this kind of router does not receive."""
        where = f"{self.name}.events"
        return InputError("an event that this router never sees", where=where, value=event.event)
