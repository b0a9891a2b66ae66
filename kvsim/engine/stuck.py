"""Errors for requests that vLLM would never end, raised when no further event can happen."""

from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.plumbing.errors import InputError


def check_stuck(scheduler: Scheduler) -> None:
    """Raise InputError if a prompt waits for encoder-cache room for its next multimodal item."""
    for seq in (*scheduler.prefilling, scheduler.waiting.head):
        items = () if seq is None else seq.request.items
        if seq is not None and items and seq.num_computed < items[-1].end_tokens:
            raise no_room_for_item(seq.id)


def no_room_for_item(request_id: str) -> InputError:
    """The error if no step ever has encoder-cache room for the next multimodal item of this
    request.
    """
    return InputError(
        "a request waits for ever: no step has room for the next image of its prompt",
        where="scheduler",
        value=request_id,
        remedy="raise max_num_batched_tokens, encoder_cache_size or "
        "long_prefill_token_threshold, or disable_chunked_mm_input = false",
    )
