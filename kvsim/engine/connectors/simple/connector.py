"""vLLM's SimpleCPUOffloadConnector (vLLM 0.33, v1/simple_kv_offload).

Host memory is a second pool of blocks. A store holds its device blocks until it is reported; then
they return to the end of the free queue.
"""

from sys import maxsize

from kvsim.engine.connectors.connector import (
    NO_MATCH,
    NOTHING,
    Connector,
    Decided,
    RemoteMatch,
    Report,
)
from kvsim.engine.connectors.lane import Lane
from kvsim.engine.connectors.simple.copies import BlockPair, SimpleLoad, SimpleStore
from kvsim.engine.connectors.simple.host_blocks import HostBlocks
from kvsim.engine.connectors.simple.lookup import HostLookup
from kvsim.engine.connectors.simple.seen_tables import SeenTables
from kvsim.engine.connectors.simple.settings import SimpleSettings
from kvsim.engine.connectors.totals import FROM_HOST, TO_HOST, TierTotals
from kvsim.memory.loading import FreeBlock, HeldBlock
from kvsim.sequence import Sequence

STORE = 1 << 60  # jobs of stores are numbered from here on


class SimpleConnector(Connector):
    """Stores device blocks in host blocks and loads hits. store, load: the two directions of the
    link.

    settings: with all counts resolved.
    """

    def __init__(self, settings: SimpleSettings, store: Lane, load: Lane) -> None:
        self.settings, self.store, self.load = settings, store, load
        self.host = HostBlocks(settings.host_blocks)
        self._pinned: dict[Sequence, list[int]] = {}  # hits of sequences that wait
        self._after: dict[Sequence, list[int]] = {}  # blocks that each has offered, by group
        self._lookup = HostLookup(settings.groups, settings.block_tokens)
        self._tables = SeenTables(settings)
        self._ended = False  # whether a sequence has ended since the last step
        self._storing: set[HeldBlock] = set()
        self._rest: list[BlockPair] = []  # of finished sequences, for the next copy
        self._cursor: FreeBlock | None = None
        self._num_idle = 0  # stores since the last sequence ended
        self._marked: tuple[int, int] | None = None  # the cursor, and all free blocks, hashed
        self._loads: dict[int, SimpleLoad] = {}
        self._stores: dict[int, SimpleStore] = {}
        # A set, as in vLLM: stores that end together are reported in the order of its walk.
        self._unreported: set[int] = set()
        self._num_loads = self._num_stores = 0
        self._new_loads: list[tuple[Sequence, list[int]]] = []
        self._new_store: int | None = None
        self._flush = False
        self.tick_ps = 1

    # --- loads ----------------------------------------------------------------------------------

    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        self._unpin(seq)
        size, host, groups = self.settings.block_tokens, self.host, range(self._num_groups)
        first, end = device_tokens // size, seq.num_tokens // size
        num = 0
        if not device_tokens % size:
            keys = [self.device.keys_of(seq, first, end, g) for g in groups]
            most, limit = (seq.num_tokens - 1) // size - first, len(keys[0])
            num = self._lookup.find(
                min(most, limit), limit, lambda g, place: host.find(keys[g][place]) > 0
            )
        if num:
            self._pinned[seq] = found = [
                host.find(keys[g][place]) for g in groups for place in self._lookup.needed(g, num)
            ]
            host.hold(found)
        if self.journal is not None:
            self.journal.add("asking", seq)
            self.journal.add("lookup", [seq.id, device_tokens, num * size, "async" if num else ""])
        return RemoteMatch(num * size, waits=True) if num else NO_MATCH

    @property
    def _num_groups(self) -> int:
        return len(self.settings.groups)

    def _unpin(self, seq: Sequence) -> None:
        self.host.let_go(self._pinned.pop(seq, []))

    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        self._after.setdefault(seq, [0] * self._num_groups)
        if match.tokens:
            blocks = self._pinned[seq]
            self.host.hold(blocks)
            self._new_loads.append((seq, blocks))
        self._unpin(seq)

    # --- a step ---------------------------------------------------------------------------------

    def scheduled(self, step: Decided) -> None:
        self._flush = bool(step.plan.preempted)
        if self._flush and self.journal is not None:
            self.journal.add("flush", 1)
        for seq in step.plan.preempted:
            self._after[seq] = [0] * self._num_groups
            self._tables.forget(seq)
        rest, self._rest = self._rest, []
        pairs: list[BlockPair] = []
        if not self.settings.lazy:
            pairs = self._states(step) + self._computed(step) + rest
        else:
            self.device.take_named_states()  # they are stored when they are about to go
            if self._after or self._ended or self._stores:  # else vLLM schedules no further step
                pairs = self._about_to_go()
        self._ended, self._new_store = False, None
        if pairs:
            self._new_store = self._num_stores
            self._stores[self._num_stores] = SimpleStore(pairs)
            self._num_stores += 1
            if self.journal is not None:
                keys, host = [pair.key for pair in pairs], [pair.host for pair in pairs]
                num_bytes = len(pairs) * self.settings.block_bytes
                self.journal.add("stores", [self._new_store, keys, host, num_bytes])

    def _paired(self, chosen: list[tuple[int, HeldBlock]]) -> list[BlockPair]:
        """Pair each (key, device block) of `chosen` with a new host block, and hold the device
        blocks.
        """
        evicted: list[int] = []
        pairs = [BlockPair(held, key, self.host.take(evicted)) for key, held in chosen]
        if pairs:
            self.device.hold([pair.held for pair in pairs])
            self._storing.update(pair.held for pair in pairs)
        if self.journal is not None:
            for gone in evicted:
                self.journal.add("cpu_evicted", gone)
        return pairs

    def _computed(self, step: Decided) -> list[BlockPair]:
        """Blocks to store that the step's sequences had computed before it.

        Admitted sequences come first, among them those that were never preempted.
        """
        self._tables.update(step, self.device)
        admitted = sorted(step.admitted, key=lambda seq: seq.num_preemptions > 0)
        new = set(admitted)
        found: list[BlockPair] = []
        for seq in (*admitted, *(seq for seq in step.stepping if seq not in new)):
            found += self._offer(seq, self.device.returned_tokens(seq), done=False)
        return found

    def _states(self, step: Decided) -> list[BlockPair]:
        """Recurrent states to store: those that this step adds to the device's prefix cache, as
        many as fit in host memory. A state that does not fit is not offered again.
        """
        found: list[BlockPair] = []
        for seq, states in self.device.take_named_states().items():
            if seq not in self._after or seq.finished or seq in step.plan.preempted:
                continue
            for state in states:
                named = self.device.named_block(state.number)
                if named is not None and self._lacks(named) and self.host.num_free:
                    found += self._paired([named])
        return found

    def _lacks(self, named: tuple[int, HeldBlock]) -> bool:
        """Whether host memory neither holds nor is receiving the content of `named`, a pair (key,
        device block).
        """
        return named[1] not in self._storing and not self.host.find(named[0])

    def _offer(self, seq: Sequence, num_tokens: int, *, done: bool) -> list[BlockPair]:
        """Blocks to store of the first num_tokens tokens of `seq`, one layer group after the other,
        as many as fit in host memory. done: the sequence has finished.
        """
        afters, end = self._after.get(seq), num_tokens // self.settings.block_tokens
        chosen: list[tuple[int, HeldBlock]] = []
        room = self.host.num_free
        if afters is None or not room:
            return []
        for g, group in enumerate(self.settings.groups):
            after = afters[g]
            if group.reach_tokens == 0 or end <= after or len(chosen) >= room:
                continue
            afters[g] = end
            for place, named in enumerate(self._offered(seq, g, after, end, done=done), after):
                if named is None or not self._lacks(named):
                    continue
                if len(chosen) == room:
                    afters[g] = place
                    break
                chosen.append(named)
        return self._paired(chosen)

    def _offered(
        self, seq: Sequence, g: int, start: int, end: int, *, done: bool
    ) -> list[tuple[int, HeldBlock] | None]:
        """(key, device block) of the positions `start` to `end` - 1 of the table of group g; None
        where the content has no key. done: the sequence has finished.
        """
        told = None if done else self._tables.of(seq, g)
        if told is None:
            return self.device.named_blocks(seq, start, end, g)
        found: list[tuple[int, HeldBlock] | None] = []
        for place, number in enumerate(told[start:end], start):
            if number:
                found.append(self.device.named_block(number))
            else:
                found += self.device.named_blocks(seq, place, place + 1, g)
        return found

    def _about_to_go(self) -> list[BlockPair]:
        """Cached blocks to store that the device evicts next and host memory lacks, as many as host
        memory has room for.

        The scan of the free queue starts after the block examined last.
        """
        chosen: list[tuple[int, HeldBlock]] = []
        if self._cursor is not None:
            self._cursor = self.device.still_free(self._cursor)
        for free in self.device.free_blocks(self._cursor, self.settings.lazy_blocks):
            if len(chosen) >= self.host.num_free:
                break
            self._cursor = free
            if free.key >= 0 and not self.host.find(free.key):
                chosen.append((free.key, free.block))
        if chosen:
            self._look_for_circles()
        return self._paired(chosen)

    def _look_for_circles(self) -> None:
        """Detect a livelock: without requests, vLLM may store the same blocks forever into a small
        host memory that evicts them again.

        It is one if the order of all free blocks repeats. The order of the 1st, 2nd, 4th, 8th...
        store is remembered and compared.
        """
        if self._after:
            self._num_idle, self._marked, self.circles = 0, None, False
            return
        self._num_idle += 1
        cursor = -1 if self._cursor is None else self._cursor.number
        marks = not self._num_idle & (self._num_idle - 1)
        if self.circles or not (marks or (self._marked and self._marked[0] == cursor)):
            return
        free = [(each.number, each.key) for each in self.device.free_blocks(None, maxsize)]
        under_way = [pair.key for store in self._stores.values() for pair in store.pairs]
        order = cursor, hash((tuple(free), tuple(under_way), self.host.order))
        self.circles = order == self._marked
        self._marked = order if marks else self._marked

    def finished(self, seq: Sequence) -> bool:
        if not self.settings.lazy:
            self._rest += self._offer(seq, seq.final_tokens, done=True)
        self._after.pop(seq, None)
        self._tables.forget(seq)
        self._ended = True
        return False

    def returned(self, report: Report, now_ps: int) -> None:
        for number in report.jobs:
            if number >= STORE:
                pairs = self._stores.pop(number - STORE).pairs
                for pair in pairs:
                    self.host.name(pair.host, pair.key)
                    self._storing.discard(pair.held)
                self.host.let_go([pair.host for pair in pairs])
                self.device.let_go([pair.held for pair in pairs])
            else:
                for blocks in self._loads.pop(number).host:
                    self.host.let_go(blocks)

    def totals(self) -> tuple[TierTotals, ...]:
        host = TierTotals(
            "vllm-simple-offloading",
            self.settings.host_bytes,
            self.store.num_bytes,
            self.load.num_bytes,
            self.store.busy_ps,
            self.load.busy_ps,
            copies=((TO_HOST, self.store.log), (FROM_HOST, self.load.log)),
        )
        return (host,)

    # --- the worker half ------------------------------------------------------------------------

    def launch(self, now_ps: int, compute_ps: int) -> int:
        if not self._flush:
            return now_ps
        return max(now_ps, self.store.last_ps, self.load.last_ps)

    def launched(self, now_ps: int, end_ps: int) -> None:
        if self._new_loads:
            load = SimpleLoad(
                [seq for seq, _ in self._new_loads],
                [blocks for _, blocks in self._new_loads],
                sum(len(blocks) for _, blocks in self._new_loads),
            )
            num_bytes = load.num_blocks * self.settings.block_bytes
            if self.journal is not None:
                keys = [key for seq, blocks in self._new_loads for key in self._loaded_keys(blocks)]
                ids = [seq.id for seq in load.seqs]
                self.journal.add("loads", [self._num_loads, ids, keys, num_bytes])
            number, self._new_loads = self._num_loads, []
            self._num_loads += 1
            self._loads[number] = load
            self._submit("load", self.load, number, number, num_bytes, now_ps)
        if self._new_store is not None:
            number = self._new_store
            num_bytes = len(self._stores[number].pairs) * self.settings.block_bytes
            self._unreported.add(number)
            self._submit("store", self.store, number + STORE, number, num_bytes, end_ps)
            self._new_store = None

    def _loaded_keys(self, blocks: list[int]) -> list[int]:
        return [self.host.key(block) for block in blocks]

    def _submit(
        self, name: str, lane: Lane, job: int, event: int, num_bytes: int, at_ps: int
    ) -> None:
        copy = lane.submit(job, num_bytes, at_ps)
        if self.journal is not None:
            tick_ps = self.tick_ps
            self.journal.add(
                "xfer", [event, name, copy.start_ps // tick_ps, copy.end_ps // tick_ps]
            )

    def poll(self, now_ps: int) -> Report:
        loads, ended = self.load.ended(now_ps), set(self.store.ended(now_ps))
        if not (loads or ended):
            return NOTHING
        stores = [number for number in self._unreported if number + STORE in ended]
        for number in stores:
            self._unreported.discard(number)
        loaded = tuple(seq for number in loads for seq in self._loads[number].seqs)
        if self.journal is not None:
            for seq in loaded:
                self.journal.add("done", ["load", seq.id])
            for number in stores:
                self.journal.add("done", ["store", number])
        return Report(loaded=loaded, jobs=(*loads, *(number + STORE for number in stores)))

    @property
    def busy(self) -> bool:
        return bool(self._loads or self._stores or self._rest or self._new_loads)

    @property
    def num_held(self) -> int:
        """Number of device blocks that copies read or write."""
        loading = sum(load.num_blocks for load in self._loads.values())
        loading += sum(len(blocks) for _, blocks in self._new_loads)
        return loading + sum(len(store.pairs) for store in self._stores.values())
