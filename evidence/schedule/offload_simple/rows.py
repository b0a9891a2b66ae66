"""Rows of a schedule recorded from vLLM with SimpleCPUOffloadConnector."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from evidence.schedule.case import CaseRequest
from evidence.schedule.offload.connected_rows import ConnectedRows
from evidence.schedule.rows import Row
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.simple.connector import SimpleConnector
from kvsim.engine.plan import Plan
from kvsim.engine.policies.queue import FcfsQueue, PriorityQueue
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request
from kvsim.sequence import Sequence


class RecordedNames:
    """Names of blocks as the recorder wrote them: a request and the index of the block in it. The
    request is the first of the case with the same content.

    A request's content is its prompt and its output without the last token. size: tokens per block.
    groups: number of block tables. With several tables a name has the request itself, and ends with
    the number of the table.
    """

    def __init__(self, requests: Iterable[CaseRequest], size: int, groups: int) -> None:
        self._ends = [f"/{g}" for g in range(groups)] if groups > 1 else [""]
        self._of: dict[str, list[str]] = {}
        first: dict[int, str] = {}
        for request in (each for listed in requests for each in listed.requests()):
            called, chain = self._of.setdefault(request.id, []), 0
            for place, block in enumerate(_blocks_of(request, size)):
                chain = hash((chain, block))
                name = f"{request.id}#{place}"
                called.append(name if groups > 1 else first.setdefault(chain, name))

    @property
    def several_tables(self) -> bool:
        """Whether there are several block tables."""
        return len(self._ends) > 1

    def of(self, name: str) -> list[list[str]]:
        """Names of the blocks of request `name`: one list for each table."""
        return [[each + end for each in self._of[name]] for end in self._ends]


def _blocks_of(request: Request, size: int) -> list[tuple[int, ...]]:
    """The token ids of a request's full blocks."""
    tokens = [first + at for first, length in request.prompt_runs or () for at in range(length)]
    tokens += [(request.output_start or 0) + at for at in range(request.output_tokens - 1)]
    return [tuple(tokens[at - size : at]) for at in range(size, len(tokens) + 1, size)]


class SimpleRows(ConnectedRows):
    """Rows in which evictions for a store at a request's end belong to the step that ended it.

    blocks: names of blocks in the recording. names: name of the content, by key. sorts_loads:
    whether loads that end together are listed by request.
    """

    blocks: RecordedNames
    names: dict[int, str]
    _simple: SimpleConnector | None = None

    def __init__(
        self,
        by_step: deque[tuple[int, list[Request]]],
        blocks: RecordedNames,
        *,
        stall_once: bool,
        overlaps: bool,
        sorts_loads: bool,
    ) -> None:
        several = blocks.several_tables
        super().__init__(by_step, stall_once=stall_once, by_group=several, overlaps=overlaps)
        self.blocks, self.sorts_loads = blocks, sorts_loads

    def watch(self, connector: Connector) -> None:
        assert isinstance(connector, SimpleConnector)
        self._simple, self.names = connector, {}

    def connector_counts(self) -> dict[str, Any]:
        assert self._simple is not None
        host = self._simple.host
        return {"cpu": [host.num_usable - host.num_free, host.num_known]}

    def further(self, scheduler: Scheduler, plan: Plan, events: dict[str, list[Any]]) -> Row:
        assert isinstance(scheduler, ContinuousScheduler)
        assert self._simple is not None
        asking: Iterable[Sequence] = events.pop("asking", ())
        if self.blocks.several_tables:  # the recording then looks up all requests in each row
            queues = scheduler.connection.queues
            assert isinstance(queues.waiting, FcfsQueue | PriorityQueue)
            asking = (*queues.waiting.in_order, *queues.holding, *scheduler.running)
        for seq in asking:
            for g, called in enumerate(self.blocks.of(seq.id)):
                keys = scheduler.connection.device.keys_of(seq, 0, len(called), g)
                for key, name in zip(keys, called, strict=True):
                    self.names.setdefault(key, name)
        for entry in events.get("stores", ()):
            entry[1] = [self.names[key] for key in entry[1]]
        for entry in events.get("loads", ()):
            entry[2] = [self.names[key] for key in entry[2]]
        if "done" in events:
            events["done"] = self._sorted(events["done"])
        evicted = [self.names[key] for key in events.get("cpu_evicted", ())]
        return {
            "pinned": self._simple.num_held,
            "flush": int(bool(events.get("flush"))),
            "cpu_evicted": evicted,
        }

    def _sorted(self, done: list[Any]) -> list[Any]:
        """Finished copies in the recorder's order: loads, then stores by number. vLLM reports both
        in the order of a set. A recorder of block tables or drafts left loads in the order of their
        copies.
        """
        loads = [each for each in done if each[0] == "load"]
        stores = [each for each in done if each[0] == "store"]
        return (sorted(loads) if self.sorts_loads else loads) + sorted(stores)

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        super().complete(scheduler, plan, row)
        evicted = [self.names[key] for key in self.journal.take_of("cpu_evicted")]
        row["cpu_evicted"] = row["cpu_evicted"] + evicted
