"""Stores: which chunks are offered to host memory as sequences compute, and which stores a step
must wait for.
"""

from collections.abc import Iterator

from kvsim.engine.connectors.connector import Decided, DeviceBlocks
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.host_pool import HostPool
from kvsim.engine.connectors.offloading.jobs import CopyJob, Jobs
from kvsim.engine.connectors.offloading.keys import ChunkKeys
from kvsim.engine.connectors.offloading.reachable import StoredReach
from kvsim.engine.connectors.offloading.settings import OffloadedGroup, OffloadSettings
from kvsim.engine.connectors.offloading.window_tables import WindowTables, given
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class Tables:
    """Block ids of a sequence in each layer group, 0 where there is no block.

    junction_tokens: the shared-prefix boundary, after which other prompts diverged.
    """

    __slots__ = ("blocks", "junction_tokens")

    def __init__(self, blocks: list[list[int]], junction_tokens: int) -> None:
        self.blocks, self.junction_tokens = blocks, junction_tokens


class Stores:
    """Offers each chunk of a sequence once, in the order of its tokens."""

    def __init__(
        self, settings: OffloadSettings, pool: HostPool, keys: ChunkKeys, jobs: Jobs
    ) -> None:
        self._settings, self._pool, self._keys, self._jobs = settings, pool, keys, jobs
        self.journal: ConnectorJournal | None = None
        self.num_failed = 0  # offers that found no room
        self._next: dict[Sequence, list[int]] = {}  # by group: chunks offered, or not to be
        self._offering: set[Sequence] = set()  # those with chunks that are still to be offered
        self._finished: dict[Sequence, Tables] = {}
        self._sliding: list[tuple[CopyJob, list[int]]] = []  # of this step, by the store
        self._windows = WindowTables(settings)
        self._given: set[int] = set()  # blocks allocated by the current step

    @property
    def pending(self) -> bool:
        """Whether some finished sequences have not offered their last chunks."""
        return bool(self._finished)

    @property
    def finishing(self) -> list[Sequence]:
        """Finished sequences that still offer chunks with the next step."""
        return list(self._finished)

    def asked(self, seq: Sequence) -> None:
        """A waiting sequence is looked up: it will offer all its chunks again."""
        self._next[seq] = [0] * len(self._settings.groups)
        self._offering.add(seq)
        self._windows.forget(seq)

    def loaded(self, seq: Sequence, num_tokens: int) -> None:
        """Skip the first `num_tokens` tokens, which were loaded, in later offers."""
        groups = self._settings.groups
        self._next[seq] = [ceil_div(num_tokens, group.chunk_tokens) for group in groups]

    def finished(self, seq: Sequence, device: DeviceBlocks) -> None:
        """`seq` is done and about to free its blocks."""
        self._finished[seq] = self._tables(seq, device)
        for job in self._jobs.of(seq):
            if job.store:
                self._jobs.guard(job, job.blocks)

    # --- a step ---------------------------------------------------------------------------------

    def scheduled(self, step: Decided, device: DeviceBlocks) -> list[CopyJob]:
        """Return the stores that the scheduled step makes."""
        self._given = set()
        if self._windows or self._jobs.guarding or self._finished:
            self._given = given(step, device, self._settings)
        if self._windows:
            self._windows.update(step, device, self._given, self._next)
        made = self._states(device)
        for seq in step.stepping:
            if seq not in self._offering:
                continue
            known = self._most(seq, device.known_tokens(seq))
            if self._open(seq, known):
                tokens = min(known, device.computed_tokens(seq))
                if self._open(seq, tokens):
                    made += self._offer(seq, tokens, self._tables(seq, device), done=False)
            elif not self._open(seq, self._most(seq, seq.final_tokens)):
                self._offering.remove(seq)
        for seq, tables in self._finished.items():
            tokens = self._most(seq, seq.final_tokens)
            for job in self._offer(seq, tokens, tables, done=True):
                self._jobs.guard(job, job.blocks)
                made.append(job)
        for seq in self._finished:  # once all of them have offered
            self._pool.finished(seq)
            self._keys.forget(seq)
            self._windows.forget(seq)
            self._next.pop(seq, None)
            self._offering.discard(seq)
        self._finished = {}
        return made

    def _tables(self, seq: Sequence, device: DeviceBlocks) -> Tables:
        """The current block tables of `seq`."""
        held, skipped = device.blocks_of(seq), device.skipped_blocks(seq)
        blocks = []
        for g in range(len(self._settings.groups)):
            watched = self._windows.of(seq, g)
            blocks.append([0] * skipped[g] + held[g] if watched is None else watched)
        return Tables(blocks, device.junction_tokens(seq))

    def _states(self, device: DeviceBlocks) -> list[CopyJob]:
        """Store jobs for recurrent states at chunk ends that sequences have passed, one job for
        each.
        """
        made: list[CopyJob] = []
        for seq, states in device.take_named_states().items():
            most = self._most(seq, device.known_tokens(seq))
            for g, block, tokens in states:
                group = self._settings.groups[g]
                if tokens > most or tokens % group.chunk_tokens:
                    continue
                place = tokens // group.chunk_tokens - 1
                content = ChunkContent(self._keys.key(seq, g, place), tokens, g)
                chunks = self._put(seq, [content])
                if chunks:
                    job = self._job(seq, chunks, [block], self._settings.only(g))
                    self._sliding.append((job, [block]))
                    made.append(job)
        return made

    def _put(self, seq: Sequence, contents: list[ChunkContent]) -> list[HostChunk] | None:
        """Allocate slots for the contents to store; None: there is no room."""
        chunks = self._pool.offer(seq, contents)
        if chunks is None:
            self.num_failed += 1
            if self.journal is not None:
                self.journal.add("store_fail", [seq.id, len(contents)])
        return chunks

    def _job(
        self, seq: Sequence, chunks: list[HostChunk], blocks: list[int], counts: list[int]
    ) -> CopyJob:
        num_bytes = self._settings.bytes_of(counts)
        job = self._jobs.make(seq, chunks, blocks, counts, num_bytes, store=True)
        if self.journal is not None:
            slots = [chunk.slot for chunk in chunks]
            self.journal.add("stores", [job.number, seq.id, chunks, slots, len(blocks), num_bytes])
        return job

    def _most(self, seq: Sequence, tokens: int) -> int:
        """Number of the first `tokens` tokens that may be stored, by prompt_only and
        max_offload_tokens.
        """
        if self._settings.prompt_only:
            tokens = min(tokens, seq.prompt_tokens)
        most = self._settings.limit_of(seq)[1]
        return tokens if most is None else min(tokens, most)

    def _open(self, seq: Sequence, tokens: int) -> bool:
        """Whether some full chunks of the first `tokens` tokens have not been offered."""
        after = self._next[seq]
        groups = self._settings.groups
        return any(tokens // group.chunk_tokens > after[g] for g, group in enumerate(groups))

    def _offer(self, seq: Sequence, tokens: int, tables: Tables, *, done: bool) -> list[CopyJob]:
        """Offer the chunks of the first `tokens` tokens that were not offered; returns the store
        job, if any.

        done: the sequence has finished.
        """
        after = self._next[seq]
        contents: list[ChunkContent] = []
        upto = list(after)
        for g, group in enumerate(self._settings.groups):
            have = len(tables.blocks[g]) // group.chunk_blocks
            num = min(group.chunks_to_store(tokens, seq.prompt_tokens, done=done), have)
            upto[g] = max(after[g], num)
            if group.recurrent:
                continue
            places = list(self._places(seq, g, num, tables, done=done))
            if not places:
                continue
            first = places[0]
            keys, size = self._keys.listed(seq, g, first, places[-1] + 1), group.chunk_tokens
            contents += [ChunkContent(keys[at - first], (at + 1) * size, g) for at in places]
        chunks = self._put(seq, contents) if contents else []
        if chunks is None:
            return []
        self._next[seq] = upto
        if not chunks:
            return []
        blocks: list[int] = []
        slid: list[int] = []  # what layers may give back while their sequence runs
        counts = self._settings.no_blocks()
        for chunk in chunks:
            g, end = chunk.content.group, chunk.content.end
            group = self._settings.groups[g]
            last = end // group.block_tokens
            taken = [block for block in tables.blocks[g][last - group.chunk_blocks : last] if block]
            blocks += taken
            if group.reach_tokens is not None:
                slid += taken
            counts[g] += len(taken)
        job = self._job(seq, chunks, blocks, counts)
        if slid:
            self._sliding.append((job, slid))
        return [job]

    def _places(
        self, seq: Sequence, g: int, num: int, tables: Tables, *, done: bool
    ) -> Iterator[int]:
        """Indices of the chunks of layer group g that are offered now, among the first `num`.

        done: the sequence has finished.
        """
        settings, group, after = self._settings, self._settings.groups[g], self._next[seq][g]
        each, blocks = group.chunk_blocks, tables.blocks[g]
        in_prompt = self._most(seq, seq.prompt_tokens) // group.chunk_tokens
        horizon = num if done else in_prompt if num <= in_prompt else None
        first, earlier = after, None
        if done and num != in_prompt and settings.ends_anew(group):
            # The last segment ends later than was known while the prompt was computed.
            segment = settings.alignment_tokens // group.block_tokens
            first = min(after, (num * each - num * each % segment) // each)
            earlier = self._reach(seq, group, tables, in_prompt)
        reach = self._reach(seq, group, tables, horizon)
        if reach.all and each == 1 and earlier is None:
            yield from (place for place in range(first, num) if blocks[place])
            return
        for place in range(first, num):
            start = place * each
            if not blocks[start + each - 1] or not reach.any_of(start, each):
                continue
            if earlier is not None and place < after and earlier.any_of(start, each):
                continue
            if all(blocks[at] or not reach.has(at) for at in range(start, start + each)):
                yield place

    def _reach(
        self, seq: Sequence, group: OffloadedGroup, tables: Tables, horizon: int | None
    ) -> StoredReach:
        blocks = None if horizon is None else horizon * group.chunk_blocks
        junction = tables.junction_tokens
        return StoredReach(self._settings, group, seq.prompt_tokens, junction, blocks)

    # --- flushes --------------------------------------------------------------------------------

    def flushed(self, step: Decided) -> set[int]:
        """Numbers of the stores that must end before the step.

        These are stores of sequences that it preempts, and stores that read blocks which it
        allocates to others. From the next step on, blocks that windows free are guarded too.
        """
        found = {
            job.number for seq in step.plan.preempted for job in self._jobs.of(seq) if job.store
        }
        found |= self._jobs.reading(self._given)
        for job, blocks in self._sliding:
            self._jobs.guard(job, blocks)
        self._sliding = []
        return found

    def quiet_steps(self, step: Decided, device: DeviceBlocks, limit: int) -> int:
        """Number of further decode steps, at most `limit`, that offer no chunks."""
        groups = self._settings.groups
        watched = bool(self._windows) and not self._settings.prompt_only
        for seq in step.stepping:
            if seq not in self._offering and not watched:
                continue
            after = self._next[seq]
            most = self._most(seq, seq.final_tokens)
            known = device.known_tokens(seq)
            for g, group in enumerate(groups):
                end = (after[g] + 1) * group.chunk_tokens
                if watched:
                    end = (known // group.block_tokens + 1) * group.block_tokens
                if end <= most:
                    limit = min(limit, device.steps_below(seq, end))
        return limit
