"""How many slots to allocate for a sequence: one policy for each kind of contiguous buffer."""

from abc import abstractmethod

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import Refusal
from kvsim.memory.contiguous.places import BufferPlaces
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class BufferSizes:
    """Policy that sizes buffers, in slots, up to max_model_len. places: where buffers are
    allocated.
    """

    def __init__(self, max_model_len: int, places: BufferPlaces) -> None:
        self.max_model_len, self.places = max_model_len, places

    @abstractmethod
    def slots_for(self, seq: Sequence, tokens: int) -> int:
        """Slots to allocate for `seq`, at least `tokens`."""

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """See `Allocator.refusal`."""

    def too_long(self, request: Request) -> Refusal | None:
        """A refusal if the request exceeds max_model_len."""
        total = request.prompt_tokens + request.output_tokens
        if total <= self.max_model_len:
            return None
        return Refusal(
            "prompt and output exceed the model's maximum length",
            total,
            self.max_model_len,
            "tokens",
            "shorten the request or raise max_model_len",
        )
