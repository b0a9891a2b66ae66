"""Storage lookups of the hierarchical cache under random events, equal to SGLang 0.5.23's own
functions under the same events.

Recorded: its tree, retries, `prefetch_from_storage`, `check_prefetch_progress`, the drain of its
queues and the scheduler's calls of them ran unmodified, over a host pool and a storage that keep
nothing but counts and keys; queries and reads took ticks. 48 cases are the first that a generator
drew after the last change, and the last one is the corner that a simulator of these rules got
wrong. Of 4,000 others all were equal.

A case has `prompts` (runs of tokens), how much of each is `stored`, and events: a prompt comes to
wait (`look`) or is `admitted`; a `pass` begins so many ticks later; admission has a `check`; a
prompt's begin is filed on the device (`insert`); something else takes room in host memory or gives
it back (`ballast`). After each: the check's result, whose lookups are under way, the pages that the
storage was asked for so far, free tokens of host memory, and who is to be looked up again.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvsim.engine.connectors.lane import Lane
from kvsim.engine.hicache.contents import StorageContents
from kvsim.engine.hicache.copies import HostLink, TierCopies
from kvsim.engine.hicache.settings import StorageSettings
from kvsim.engine.hicache.storage import Storage
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.request import Request
from kvsim.sequence import Sequence

PAGE = 4
NEVER = 10**6  # hits until the device's content is written
RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "lookups.json.gz").read_bytes()))


class Ticks:
    """asked: the pages of each query."""

    def __init__(self, query: int, read: int) -> None:
        self._query, self._read = query, read
        self.asked: list[int] = []

    def query_ps(self, pages: int) -> int:
        self.asked.append(pages)
        return self._query

    def read_ps(self, pages: int) -> int:
        return self._read

    def store_ps(self, pages: int) -> int:
        raise NotImplementedError


class Replay:
    """A storage under the events of a case."""

    def __init__(self, case: dict[str, Any]) -> None:
        threshold = None if case["writes_back"] else NEVER
        host_tokens = case["host_tokens"]
        self.pool = RadixAllocator(
            10**4, 1, PAGE, host_tokens=host_tokens, write_threshold=threshold
        )
        link = HostLink(Lane(0, 10**12), Lane(0, 10**12), 1, 1, 1)
        self.copies = TierCopies(self.pool, link)
        self.times = Ticks(case["query"], case["read"])
        settings = StorageSettings(
            case["policy"],
            case["threshold_tokens"],
            case["timeout"],
            0,
            case["retry_passes"],
            case["most_retries"],
        )
        contents = StorageContents(PAGE)
        self.storage = Storage(self.pool, self.copies, self.times, settings, contents)
        self.seqs = []
        for at, runs in enumerate(case["prompts"]):
            tokens = sum(length for _, length in runs)
            prompt = tuple((start, length) for start, length in runs)
            seq = Sequence(Request(str(at), 0, tokens, 1, prompt_runs=prompt), 0)
            self.seqs.append(seq)
            end = min(tokens, case["stored"][at]) // PAGE * PAGE
            contents.stored.update(contents.keys.of(0, self.pool.slots(seq).content, 0, end))
        self.waiting: list[Sequence] = []
        self.ballast = 0

    def after(self, kind: str, *values: int) -> list[Any]:
        """The recorded state after an event."""
        result = getattr(self, f"_{kind}")(*values)
        _ = self.storage.next_ps  # the servers begin what was submitted
        return [
            result,
            sorted(seq.request.id for seq in self.storage.lookups),
            list(self.times.asked),
            self.pool.tree.host.free,
            sorted(seq.request.id for seq in self.storage._retries._waits),
        ]

    def _pass(self, ticks: int) -> None:
        self.copies.now_ps += ticks
        self.storage.serve(self.copies.now_ps)
        head = self.waiting[0] if self.waiting else None
        self.storage.begin(list(self.waiting), head)

    def _look(self, at: int) -> None:
        if self.seqs[at] not in self.waiting:
            self.waiting.append(self.seqs[at])
            self.storage.look_up(self.seqs[at])

    def _check(self, at: int) -> Any:
        seq = self.seqs[at]
        if seq not in self.waiting:
            return None
        if self.storage.passes_over(seq):
            return "over"
        tokens = self.pool.anchor(seq)[1]
        return "lost" if self.storage.lost_match(seq, tokens) else tokens

    def _ballast(self, sign: int, most: int) -> None:
        tokens = min(most, self.pool.tree.host.free if sign > 0 else self.ballast)
        tokens -= tokens % PAGE
        self.ballast += sign * tokens
        self.pool.tree.host.free -= sign * tokens

    def _insert(self, at: int, most: int) -> None:
        seq = self.seqs[at]
        tokens = min(most, seq.num_tokens) // PAGE * PAGE
        if tokens:
            self.pool.tree.insert(self.pool.slots(seq).content, tokens)

    def _admitted(self, at: int) -> None:
        seq = self.seqs[at]
        if seq in self.waiting and seq not in self.storage.lookups:
            self.waiting.remove(seq)
            self.storage.admitted([seq])


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: str(case["seed"]))
def test_storage_lookups_equal_sglang_after_every_event(case: dict[str, Any]) -> None:
    replay = Replay(case)
    for number, (event, recorded) in enumerate(zip(case["events"], case["after"], strict=True)):
        assert replay.after(*event) == recorded, (number, event)
    tree = replay.pool.tree
    tree.check()
    assert tree.host.free + replay.ballast <= tree.host.tokens


def test_recorded_cases_cover_every_prefetch_policy() -> None:
    cases = RECORDED["cases"]
    assert RECORDED["engine"] == "SGLang 0.5.23"
    assert {case["policy"] for case in cases} == {"best_effort", "wait_complete", "timeout"}
    assert sum(len(case["after"][-1][2]) for case in cases) > 100
