"""Whether what simulates an engine serves the kinds of requests that come."""

from kvsim.engine.replica import ReplicaSpec
from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream


def check_served(stream: Stream, spec: ReplicaSpec, *, apart: bool) -> None:
    """Raise InputError for requests with images or adapters where these are not simulated. apart:
    prefill and decode run on replicas of their own.
    """
    special = next((each for each in stream.requests if _is_special(each)), None)
    if special is None:
        return
    what = "items" if special.items else "an adapter"
    for found, where, remedy in (
        (apart, "disaggregation", "leave the table out"),
        (
            spec.connector is not None and not spec.loads_special,
            "tier",
            'kind = "vllm-offloading" and nothing behind it, or leave the tiers out',
        ),
        (spec.speculation is not None, "speculative_config", "leave the table out"),
        (not spec.scheduler.serves_special, "scheduler", 'kind = "continuous" as vllm-0.33'),
    ):
        if found:
            raise InputError(
                f"requests with {what} are not simulated with it",
                where=where,
                value=f"request {special.id}",
                remedy=remedy,
            )

    adapters = {each.adapter for each in stream.requests} - {None}
    if adapters and not spec.scheduler.most_adapters:
        raise InputError(
            "requests ask for LoRA adapters, and the engine serves none",
            where="scheduler.max_loras",
            value=spec.scheduler.most_adapters,
            limit="at least 1",
            remedy=f"set it: there are {len(adapters):,} adapters",
        )


def check_text(stream: Stream) -> None:
    """Raise InputError for a request with images, sounds or videos."""
    for request in stream.requests:
        if request.items:
            raise InputError(
                "the towers for images, sounds and videos are not loaded",
                where="model.language_model_only",
                value=f"request {request.id} has {len(request.items):,}",
                remedy="leave it out",
            )


def _is_special(request: Request) -> bool:
    return bool(request.items) or request.adapter is not None
