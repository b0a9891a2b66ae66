"""vLLM's OffloadingConnector over host memory (vLLM 0.33,
distributed/kv_transfer/kv_connector/v1/offloading).

Chunks are stored as prompts are computed, not when the device evicts them. So host memory holds
copies of blocks that the device still caches, and whatever the device evicts is stored already.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from kvsim.engine.connectors.connector import (
    NO_MATCH,
    Connector,
    Decided,
    RemoteMatch,
    Report,
)
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.arc import AdaptiveReplacement
from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.offloading.host_pool import HostPool
from kvsim.engine.connectors.offloading.jobs import CopyJob, Jobs
from kvsim.engine.connectors.offloading.keys import ChunkKeys
from kvsim.engine.connectors.offloading.lookup import (
    ABSENT,
    READY,
    WRITING,
    HostFound,
    HostQuery,
    HostSearch,
)
from kvsim.engine.connectors.offloading.lru import LeastRecentlyUsed
from kvsim.engine.connectors.offloading.settings import OffloadSettings
from kvsim.engine.connectors.offloading.stores import Stores
from kvsim.engine.connectors.offloading.worker import Worker, Workers
from kvsim.engine.connectors.totals import FROM_HOST, TO_HOST, TierTotals
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence

POLICIES = {"lru": LeastRecentlyUsed, "arc": AdaptiveReplacement}


class OffloadingConnector(Connector):
    """Stores chunks in host memory and loads hits. settings: with all counts resolved.

    workers: copy the chunks; one for each pipeline stage. keys: the keys of chunks' content; None:
    this connector makes its own.
    """

    def __init__(
        self, settings: OffloadSettings, *workers: Worker, keys: ChunkKeys | None = None
    ) -> None:
        self.settings = settings
        policy = POLICIES[settings.policy](settings.slots)
        self.pool = HostPool(
            settings.slots, policy, settings.store_threshold, settings.max_tracker_size
        )
        self.keys = keys or ChunkKeys(tuple(group.chunk_tokens for group in settings.groups))
        self.jobs = Jobs()
        self.workers = Workers(workers, self.jobs)
        if len(workers) > 1:
            self.stage_copies = self.workers
        self.stores = Stores(settings, self.pool, self.keys, self.jobs)
        self._loading: Counter[int] = Counter()  # loads in flight, by key
        self._budget = 0
        self._loads: list[CopyJob] = []
        # What each waiting sequence found, and when and for what it was asked.
        self._known: dict[Sequence, tuple[int, HostQuery, HostFound | None]] = {}
        self._settled = True  # the result holds until a chunk is stored or evicted
        self._unsaved: set[int] = set()  # stores of the step before, if steps wait for stores

    def record(self, journal: ConnectorJournal) -> None:
        self.journal = self.stores.journal = journal
        self.workers.record(journal)

    # --- looking up -----------------------------------------------------------------------------

    def begin(self, now_ps: int) -> None:
        self._budget = self.settings.sync_load_budget_bytes

    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        match = self._match(seq, device_tokens)
        if self.journal is not None:
            kind = "" if not match or not match.tokens else "async" if match.waits else "sync"
            tokens = None if match is None else match.tokens
            self.journal.add("lookup", [seq.id, device_tokens, tokens, kind])
        return match

    def _match(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        self.stores.asked(seq)
        if self.jobs.of(seq):
            return None
        settings, num_tokens = self.settings, seq.num_tokens
        most = settings.limit_of(seq)[0]
        end = num_tokens if most is None else min(num_tokens, device_tokens + most)
        if settings.synchronous or settings.has_reach:
            end -= 1  # the last token is computed again
        if settings.state_tokens:
            end -= end % settings.state_tokens
        found = self._find(seq, HostQuery(num_tokens, end, most is not None, device_tokens))
        if found is None:
            return NO_MATCH
        if found.put_off:
            return None
        hit = found.tokens - device_tokens
        if settings.prefix_caching and self._being_loaded(seq, device_tokens, found.tokens):
            return None
        if settings.synchronous:
            return RemoteMatch(hit, waits=False)
        num_bytes = round(hit * settings.bytes_per_token)
        if found.tokens < num_tokens and num_bytes <= self._budget:
            self._budget -= num_bytes
            return RemoteMatch(hit, waits=False)
        return RemoteMatch(hit, waits=True)

    def _find(self, seq: Sequence, asked: HostQuery) -> HostFound | None:
        """Look up chunks in host memory; reuses the previous result if no chunk was stored or
        evicted since.
        """
        changes, known = self.pool.changes, self._known.get(seq)
        if known is not None and known[0] == changes and known[1] == asked:
            return known[2]
        self._settled = True
        found = HostSearch(self.settings.groups, asked, partial(self._states, seq)).found()
        if self._settled:
            self._known[seq] = changes, asked, found
        return found

    def _states(self, seq: Sequence, group: int, first: int, last: int) -> Iterator[int]:
        """Lookup results of the chunks of one layer group with indices `first` to `last` - 1."""
        writing = READY if self.settings.synchronous else WRITING
        get = self.pool.get
        for key in self.keys.listed(seq, group, first, last):
            chunk = get(key)
            yield ABSENT if chunk is None else READY if chunk.ready else writing

    def _being_loaded(self, seq: Sequence, start: int, end: int) -> bool:
        """Whether another sequence is loading some of these tokens, which will then be hits on the
        device.
        """
        if not self._loading:
            return False
        for g, group in enumerate(self.settings.groups):
            size = group.chunk_tokens
            first, last = start // size, ceil_div(end, size)
            if group.reach_tokens is not None:
                first = max(first, last - group.chunks_below(end))
            keys = self.keys.listed(seq, g, first, last)
            if any(self._loading[key] for key in keys):
                return True
        return False

    # --- loads ----------------------------------------------------------------------------------

    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        if not match.tokens:
            return
        end = device_tokens + match.tokens
        tables, skipped = self.device.blocks_of(seq), self.device.skipped_blocks(seq)
        chunks: list[HostChunk] = []
        blocks: list[int] = []
        counts, skipped_blocks = self.settings.no_blocks(), 0
        for g, group in enumerate(self.settings.groups):
            size = group.block_tokens
            first, last = ceil_div(device_tokens, size), ceil_div(end, size)
            if group.recurrent:
                first, taken = last - 1, tables[g][-1:]
            else:
                first = max(first, skipped[g])
                taken = tables[g][first - skipped[g] : last - skipped[g]]
            if last <= first:
                continue
            blocks += taken
            counts[g] = len(taken)
            each = group.chunk_blocks
            if not chunks:
                skipped_blocks = first % each
            keys = self.keys.listed(seq, g, first // each, ceil_div(last, each))
            chunks += [self._present(key) for key in keys]
        self.pool.load(seq, chunks)
        if match.waits:
            self._loading.update(chunk.key for chunk in chunks)
        self.stores.loaded(seq, end)
        num_bytes = self.settings.bytes_of(counts)
        job = self.jobs.make(
            seq,
            chunks,
            blocks,
            counts,
            num_bytes,
            store=False,
            waits=match.waits,
            skipped=skipped_blocks,
        )
        self._loads.append(job)
        if self.journal is not None:
            self.journal.add(
                "loads", [job.number, seq.id, chunks, len(blocks), num_bytes, int(not match.waits)]
            )

    def _present(self, key: int) -> HostChunk:
        chunk = self.pool.get(key)
        assert chunk is not None
        return chunk

    # --- a step ---------------------------------------------------------------------------------

    def scheduled(self, step: Decided) -> None:
        made = self.stores.scheduled(step, self.device)
        flush = self.stores.flushed(step)
        if self.journal is not None:
            for number in sorted(flush):
                self.journal.add("flush", number)
        if self.settings.synchronous:
            flush |= self._unsaved
            self._unsaved = {job.number for job in made}
        self.workers.give(made, self._loads, flush)
        self._loads = []

    def finished(self, seq: Sequence) -> bool:
        self._known.pop(seq, None)
        self.stores.finished(seq, self.device)
        return False

    def quiet_steps(self, step: Decided, limit: int) -> int:
        return self.stores.quiet_steps(step, self.device, limit)

    def totals(self) -> tuple[TierTotals, ...]:
        workers = self.workers.named()
        stores = [worker.store for _, worker in workers]
        loads = [lane for _, worker in workers for lane in (worker.load, worker.expedited)]
        logs = [
            (f"{name}{of}", lane.log)
            for of, worker in workers
            for name, lane in (
                (TO_HOST, worker.store),
                (FROM_HOST, worker.load),
                (FROM_HOST, worker.expedited),
            )
        ]
        host = TierTotals(
            self.settings.kind,
            self.settings.host_bytes,
            sum(lane.num_bytes for lane in stores),
            sum(lane.num_bytes for lane in loads),
            sum(lane.busy_ps for lane in stores),
            sum(lane.busy_ps for lane in loads),
            self.stores.num_failed,
            tuple(logs),
        )
        return (host,)

    # --- the worker half ------------------------------------------------------------------------

    def launch(self, now_ps: int, compute_ps: int) -> int:
        return self.workers.launch_on(0, now_ps, compute_ps)

    def launched(self, now_ps: int, end_ps: int) -> None:
        self.workers.launched_on(0, end_ps)

    def poll(self, now_ps: int) -> Report:
        return self.workers.poll_stages([now_ps])

    def returned(self, report: Report, now_ps: int) -> None:
        for number in report.jobs:
            job = self.jobs.ended(number)
            if job.store:
                self.pool.written(job.chunks)
                continue
            self.pool.unpin(job.chunks)
            for chunk in job.chunks if job.waits else ():
                self._loading[chunk.key] -= 1
                if not self._loading[chunk.key]:
                    del self._loading[chunk.key]

    @property
    def busy(self) -> bool:
        return len(self.jobs) > 0 or self.stores.pending
