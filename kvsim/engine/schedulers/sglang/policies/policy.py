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
    """Queue and engine as a policy reads them. room: the prefix cache. entries: the queue's record
    of each request. wishes: max_new_tokens of each request. running: SGLang's running batch, in its
    order. prefilled_tokens: prompt tokens launched so far, as SGLang counts them. passes: number of
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

    looks_up: it looks up the cached prefix of each waiting request. most: longest queue that it
    sorts, in requests; a longer queue is not sorted; None: no limit. without_cache: the policy that
    replaces it if the pool has no prefix cache; "": no other; None: SGLang refuses to start.
    shares_chunks: the chunk of the prompt in progress is cut so that shorter waiting prompts fit
    into the step. by_priority: it takes priorities into account if they are enabled. ages: it uses
    the number of prompt tokens launched since a request entered the queue.
    """

    looks_up: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    without_cache: ClassVar[str | None] = ""
    shares_chunks: ClassVar[bool] = False
    ages: ClassVar[bool] = False
    by_priority: ClassVar[bool] = False

    def sorts(self, priorities: PriorityRule) -> bool:
        """Whether the policy's order can differ from that of entry. priorities: the rule for
        request priorities.
        """
        return True

    @abstractmethod
    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        """Sort `waiting`, which is in the order of the queue; a pass tries requests in the returned
        order.
        """
        raise NotImplementedError(type(self).__name__)  # every registered policy overrides this


def matched(waiting: list[Sequence], view: QueueView) -> set[Sequence]:
    """Look up the cached prefix of each waiting request, in order, and record its length in the
    entry.

    Returns the requests that begin with the same uncached tokens as an earlier one. They are tried
    last, so that they hit the pages that the earlier one computes.
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
