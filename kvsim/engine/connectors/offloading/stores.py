"""What is offered to host memory as sequences compute, and which stores a step must wait for."""

from kvsim.engine.connectors.connector import Decided, DeviceBlocks
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.host_pool import HostPool, Offered
from kvsim.engine.connectors.offloading.jobs import CopyJob, Jobs
from kvsim.engine.connectors.offloading.keys import ChunkKeys
from kvsim.engine.connectors.offloading.reachable import is_reachable
from kvsim.engine.connectors.offloading.settings import OffloadSettings
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class Tables:
    """Block ids of a sequence by group, and how many leading positions hold none; after how many
    tokens others were seen to part from it.
    """

    __slots__ = ("blocks", "junction_tokens", "skipped")

    def __init__(self, blocks: list[list[int]], skipped: list[int], junction_tokens: int) -> None:
        self.blocks, self.skipped, self.junction_tokens = blocks, skipped, junction_tokens


class Stores:
    """Offers chunks once each, in the order of their tokens."""

    def __init__(
        self, settings: OffloadSettings, pool: HostPool, keys: ChunkKeys, jobs: Jobs
    ) -> None:
        self._settings, self._pool, self._keys, self._jobs = settings, pool, keys, jobs
        self.journal: ConnectorJournal | None = None
        self.num_failed = 0  # offers that found no room
        self._next: dict[Sequence, list[int]] = {}  # by group: chunks offered, or not to be
        self._finished: dict[Sequence, Tables] = {}
        self._sliding: list[tuple[CopyJob, list[int]]] = []  # of this step, by the store

    @property
    def pending(self) -> bool:
        """Whether some sequences have finished and are yet to be looked at."""
        return bool(self._finished)

    @property
    def finishing(self) -> list[Sequence]:
        """These sequences."""
        return list(self._finished)

    def asked(self, seq: Sequence) -> None:
        """A waiting sequence is looked up: it will offer everything."""
        self._next[seq] = [0] * len(self._settings.groups)

    def loaded(self, seq: Sequence, num_tokens: int) -> None:
        """These tokens are loaded, and need not be offered."""
        groups = self._settings.groups
        self._next[seq] = [ceil_div(num_tokens, group.chunk_tokens) for group in groups]

    def finished(self, seq: Sequence, device: DeviceBlocks) -> None:
        """A sequence is done and about to give its blocks back."""
        blocks = [list(each) for each in device.blocks_of(seq)]
        self._finished[seq] = Tables(
            blocks, list(device.skipped_blocks(seq)), device.junction_tokens(seq)
        )
        for job in self._jobs.of(seq):
            if job.store:
                self._jobs.guard(job, job.blocks)

    # --- a step ---------------------------------------------------------------------------------

    def scheduled(self, step: Decided, device: DeviceBlocks) -> list[CopyJob]:
        """The step is decided: returns the stores that it makes."""
        made: list[CopyJob] = []
        for seq in step.stepping:
            known = self._most(seq, device.known_tokens(seq))
            if self._open(seq, known):
                tokens = min(known, device.computed_tokens(seq))
                if self._open(seq, tokens):
                    tables = Tables(
                        device.blocks_of(seq),
                        device.skipped_blocks(seq),
                        device.junction_tokens(seq),
                    )
                    made += self._offer(seq, tokens, tables)
        for seq, tables in self._finished.items():
            tokens = self._most(seq, seq.final_tokens)
            for job in self._offer(seq, tokens, tables):
                self._jobs.guard(job, job.blocks)
                made.append(job)
            self._pool.finished(seq)
            self._keys.forget(seq)
            self._next.pop(seq, None)
        self._finished = {}
        return made

    def _most(self, seq: Sequence, tokens: int) -> int:
        """Of so many tokens, those that may be stored."""
        if self._settings.prompt_only:
            tokens = min(tokens, seq.prompt_tokens)
        most = self._settings.limit_of(seq)[1]
        return tokens if most is None else min(tokens, most)

    def _open(self, seq: Sequence, tokens: int) -> bool:
        """Whether some of the chunks of so many tokens have not been offered."""
        after = self._next[seq]
        groups = self._settings.groups
        return any(tokens // group.chunk_tokens > after[g] for g, group in enumerate(groups))

    def _offer(self, seq: Sequence, tokens: int, tables: Tables) -> list[CopyJob]:
        """Offer those chunks of the first `tokens` tokens that were not; returns the store."""
        after = self._next[seq]
        keys: list[int] = []
        ends: list[int] = []
        places: dict[int, tuple[int, int]] = {}
        upto = list(after)
        for g, group in enumerate(self._settings.groups):
            num = tokens // group.chunk_tokens
            each, skipped = group.chunk_blocks, tables.skipped[g]
            for place in range(after[g], num):
                have = skipped + len(tables.blocks[g])
                if place * each < skipped or (place + 1) * each > have:
                    continue
                if not is_reachable(
                    self._settings, group, place, seq.prompt_tokens, tables.junction_tokens
                ):
                    continue
                key = self._keys.key(seq, g, place)
                keys.append(key)
                ends.append(place + 1)
                places[key] = g, place
            upto[g] = max(after[g], num)
        if not keys:
            self._next[seq] = upto
            return []
        chunks = self._pool.offer(seq, Offered(keys, ends))
        if chunks is None:
            self.num_failed += 1
            if self.journal is not None:
                self.journal.add("store_fail", [seq.id, len(keys)])
            return []
        self._next[seq] = upto
        if not chunks:
            return []
        blocks: list[int] = []
        slid: list[int] = []  # what a window may give back while its sequence runs
        num_bytes = 0
        for chunk in chunks:
            g, place = places[chunk.key]
            group = self._settings.groups[g]
            first = place * group.chunk_blocks - tables.skipped[g]
            taken = tables.blocks[g][first : first + group.chunk_blocks]
            blocks += taken
            if group.window_tokens is not None:
                slid += taken
            num_bytes += len(taken) * group.block_bytes
        job = self._jobs.make(seq, chunks, blocks, num_bytes, store=True)
        if slid:
            self._sliding.append((job, slid))
        if self.journal is not None:
            slots = [chunk.slot for chunk in chunks]
            self.journal.add("stores", [job.number, seq.id, chunks, slots, len(blocks), num_bytes])
        return [job]

    # --- flushes --------------------------------------------------------------------------------

    def flushed(self, step: Decided, device: DeviceBlocks) -> set[int]:
        """The stores that must end before the step: those of sequences that it preempts, and those
        that read blocks which it gives to others. From the next step on blocks that windows give
        back are among these.
        """
        found = self._reading(step, device)
        for job, blocks in self._sliding:
            self._jobs.guard(job, blocks)
        self._sliding = []
        return found

    def _reading(self, step: Decided, device: DeviceBlocks) -> set[int]:
        """The same, as stores of earlier steps and of finished sequences guard blocks."""
        jobs = self._jobs
        found = {job.number for seq in step.plan.preempted for job in jobs.of(seq) if job.store}
        if not jobs.guarding:
            return found
        new = {*step.admitted, *step.loading}
        for seq in new:
            for blocks in device.blocks_of(seq):
                found |= jobs.reading(blocks)
        prior = {chunk.seq: chunk.prior_tokens for chunk in step.plan.chunks}
        for seq in step.stepping:
            if seq in new:
                continue
            before = prior[seq] if seq in prior else device.computed_tokens(seq) - 1
            tables, skipped = device.blocks_of(seq), device.skipped_blocks(seq)
            for g, group in enumerate(self._settings.groups):
                first = max(0, ceil_div(before, group.block_tokens) - skipped[g])
                found |= jobs.reading(tables[g][first:])
        return found

    def quiet_steps(self, step: Decided, device: DeviceBlocks, limit: int) -> int:
        """How many more steps that only decode offer nothing, at most `limit`."""
        groups = self._settings.groups
        for seq in step.stepping:
            after = self._next[seq]
            most = self._most(seq, seq.final_tokens)
            known = device.known_tokens(seq)
            for g, group in enumerate(groups):
                end = (after[g] + 1) * group.chunk_tokens
                if end <= most:
                    limit = min(limit, max(0, end - known - 1))
        return limit
