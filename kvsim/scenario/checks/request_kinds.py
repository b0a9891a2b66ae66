"""Check that the simulated engine supports the kinds of requests in the workload."""

from collections import Counter

from kvsim.engine.replica import ReplicaSpec
from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream
from kvsim.support.parts import EVERY_PART, ServerParts
from kvsim.support.table import check


def check_served(stream: Stream, spec: ReplicaSpec, *, apart: bool) -> None:
    """Raise InputError for requests with images or adapters if these are not simulated. apart:
    prefill and decode are disaggregated.
    """
    special = next((each for each in stream.requests if _is_special(each)), None)
    if special is None:
        return
    check(
        ServerParts(
            special="items" if special.items else "an adapter",
            asker=special.id,
            transfers="apart" if apart else "",
            stages=spec.stages,
            connector=spec.connector is not None,
            serves=EVERY_PART if spec.connector is None else spec.connector.serves,
            drafts=spec.speculation is not None,
            schedules=spec.scheduler.serves,
        )
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


def check_follows(stream: Stream) -> None:
    """Raise InputError for two requests with one id, and for a request that follows one that never
    leaves.

    Such a predecessor has an unknown name, or comes after the request itself.
    """
    requests = stream.requests
    if len({each.id for each in requests}) < len(requests):
        (twice, _), *_ = Counter(each.id for each in requests).most_common(1)
        raise InputError("two requests have one id", where="requests", value=twice)
    followers: dict[str, list[Request]] = {}
    for each in requests:
        if each.after is not None:
            followers.setdefault(each.after, []).append(each)
    if not followers:
        return
    groups = Counter(each.group for each in requests if each.group is not None)
    come = [each for each in requests if each.after is None]
    for each in come:  # which grows by who comes after them
        come += followers.pop(each.id, ())
        if each.group is not None:
            groups[each.group] -= 1
            if not groups[each.group]:
                come += followers.pop(each.group, ())
    if followers:
        name, (first, *_) = next(iter(followers.items()))
        raise InputError(
            f"request {first.id} comes after another, which never leaves",
            where="after",
            value=name,
            remedy="name a request or a group of the stream that does not wait for this one",
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
