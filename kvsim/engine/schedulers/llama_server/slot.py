"""A slot of the server, its content, and the request that it serves."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from kvsim.memory.cells.cache import SavedState


class SlotStage(Enum):
    """The stage of a slot's request."""

    IDLE = "idle"
    STARTED = "started"
    WAITING = "waiting"  # for another slot to compute the prompt that it shares
    PROMPT = "prompt"
    GENERATING = "generating"


class Checkpoint:
    """A copy of a slot's window cells when it held `tokens` tokens. first, last: positions of these
    cells.
    """

    __slots__ = ("first", "last", "state", "tokens")

    def __init__(self, first: int, last: int, tokens: int, state: SavedState) -> None:
        self.first = first
        self.last = last
        self.tokens = tokens
        self.state = state


class ServerTask:
    """A request. output: function that gives its n-th output token, n from 0 on.

    slot_number: the only slot that may serve it; None: any slot. num_keep: tokens that a context
    shift keeps; negative: the prompt. children: tasks of the further samples of the same prompt.

    The server sets: slot, hit_tokens, num_outputs, truncated, and error (HTTP status, text).
    """

    def __init__(
        self,
        prompt: list[int],
        most_outputs: int,
        output: Callable[[int], int],
        *,
        slot_number: int | None = None,
        cache_prompt: bool = True,
        num_keep: int = 0,
        children: "tuple[ServerTask, ...]" = (),
        owner: Any = None,
    ) -> None:
        self.prompt = prompt
        self.most_outputs = most_outputs
        self.output = output
        self.slot_number = slot_number
        self.cache_prompt = cache_prompt
        self.num_keep = num_keep
        self.children = children
        self.owner = owner
        self.is_child = False
        self.slot = -1
        self.hit_tokens = 0
        self.num_outputs = 0
        self.truncated = False
        self.error: tuple[int, str] | None = None


class Slot:
    """tokens: token ids in its cells. freed: order in which slots were last freed; -1: it was never
    used.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.checkpoints: list[Checkpoint] = []
        self.stage = SlotStage.IDLE
        self.task: ServerTask | None = None
        self.freed = -1

    @property
    def running(self) -> bool:
        """Whether the slot serves a request."""
        return self.task is not None
