"""The interface of a schedule policy of SGLang: the order of the waiting queue in a pass
(managers/schedule_policy.py, 0.5.23).
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from kvsim.engine.schedulers.sglang.entry import QueueEntry
from kvsim.engine.schedulers.sglang.priorities import PriorityRule
from kvsim.memory.prefix_room import PrefixRoom
from kvsim.plumbing.options import Options
from kvsim.sequence import Sequence
from kvsim.token_runs import beginning

IN_BATCH_TOKENS = 32  # in common with one before it, and not cached: it waits for that one


class QueueView(NamedTuple):
    """Queue and engine as a policy sees them. room: the prefix cache. entries: when each request
    entered the queue. wishes: max_new_tokens of each request. running: SGLang's running batch, in
    its order. prefilled_tokens: prompt tokens launched so far, as SGLang counts them. passes:
    earlier calls.
    """

    room: PrefixRoom
    entries: Mapping[Sequence, QueueEntry]
    wishes: Mapping[Sequence, int]
    running: Iterable[Sequence]
    priorities: PriorityRule
    prefilled_tokens: int
    passes: int


class SchedulePolicy(Options):
    """Order in which a pass tries the waiting requests. A policy has no state.

    looks_up: it looks up the cached prefixes of the queue. most: requests of the longest queue that
    it sorts; None: of any. without_cache: the policy that replaces it in a pool without a prefix
    cache; "" for itself, None if SGLang refuses to start. shares_chunks: the chunk of the prompt in
    progress leaves room for shorter prompts. by_priority: it reads priorities where they count.
    ages: it counts what the engine launched since a request arrived.
    """

    looks_up: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    without_cache: ClassVar[str | None] = ""
    shares_chunks: ClassVar[bool] = False
    ages: ClassVar[bool] = False
    by_priority: ClassVar[bool] = False

    def sorts(self, priorities: PriorityRule) -> bool:
        """Whether the order differs from that of entry. priorities: how they count."""
        return True

    @abstractmethod
    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        """`waiting`, in the order of the queue, in the order in which they are tried."""
        raise NotImplementedError(type(self).__name__)  # every registered policy overrides this


def matched(waiting: list[Sequence], view: QueueView) -> set[Sequence]:
    """Look up the prefix of each waiting request, in order, and note how much of it is cached.

    Returns the requests that share an uncached beginning with an earlier one, so that they had
    better wait for the pages that it computes.
    """
    later: set[Sequence] = set()
    beginnings = set()
    for seq in waiting:
        known = view.room.look_up(seq)
        view.entries[seq].matched = min(known.tokens, seq.num_tokens - 1)
        if known.on_device > IN_BATCH_TOKENS:
            continue
        tokens = beginning(seq, IN_BATCH_TOKENS)
        if tokens is None:
            continue
        if tokens in beginnings:
            later.add(seq)
        beginnings.add(tokens)
    return later
