"""Copies between device and host memory: what each reads and writes, and which blocks must not be
overwritten meanwhile.
"""

from collections.abc import Iterable

from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.sequence import Sequence


class CopyJob:
    """One copy between device and host memory.

    number: in order of creation. store: it copies from the device to host memory; else it is a
    load. waits: the sequence waits for the load; if False the step does. counts: number of its
    blocks in each layer group. num_bytes: bytes of these blocks that each rank of the first stage
    copies. skipped: leading blocks of the first chunk that a load omits, as the device has them.
    """

    __slots__ = (
        "blocks",
        "chunks",
        "counts",
        "num_bytes",
        "number",
        "seq",
        "skipped",
        "store",
        "waits",
    )

    def __init__(
        self,
        number: int,
        seq: Sequence,
        chunks: list[HostChunk],
        blocks: list[int],
        counts: list[int],
        num_bytes: int,
        *,
        store: bool,
        waits: bool,
        skipped: int,
    ) -> None:
        self.number, self.seq, self.chunks, self.blocks = number, seq, chunks, blocks
        self.counts, self.num_bytes, self.store, self.waits = counts, num_bytes, store, waits
        self.skipped = skipped


class Jobs:
    """Copies that have not been reported yet, by number and by sequence.

    A store may read blocks that its sequence has freed already. A step that allocates such a block
    to another sequence waits for the end of the store.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, CopyJob] = {}
        self._of: dict[Sequence, dict[int, CopyJob]] = {}
        self._guards: dict[int, dict[int, None]] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def make(
        self,
        seq: Sequence,
        chunks: list[HostChunk],
        blocks: list[int],
        counts: list[int],
        num_bytes: int,
        *,
        store: bool,
        waits: bool = False,
        skipped: int = 0,
    ) -> CopyJob:
        """Create a copy job."""
        job = CopyJob(
            self._made,
            seq,
            chunks,
            blocks,
            counts,
            num_bytes,
            store=store,
            waits=waits,
            skipped=skipped,
        )
        self._made += 1
        self._jobs[job.number] = job
        self._of.setdefault(seq, {})[job.number] = job
        return job

    def of(self, seq: Sequence) -> list[CopyJob]:
        """The copies of a sequence, the oldest first."""
        return list(self._of.get(seq, {}).values())

    def get(self, number: int) -> CopyJob:
        """The unreported copy with this number."""
        return self._jobs[number]

    @property
    def guarding(self) -> bool:
        """Whether stores read blocks that may be allocated to other sequences."""
        return bool(self._guards)

    def guard(self, job: CopyJob, blocks: list[int]) -> None:
        """Note that `job` reads `blocks`, which may be allocated to another sequence meanwhile."""
        for block in blocks:
            self._guards.setdefault(block, {})[job.number] = None

    def reading(self, blocks: Iterable[int]) -> set[int]:
        """Numbers of the stores that read some of `blocks` after their sequence freed them."""
        return {number for block in blocks for number in self._guards.get(block, ())}

    def ended(self, number: int) -> CopyJob:
        """Remove and return a copy job that was reported."""
        job = self._jobs.pop(number)
        own = self._of[job.seq]
        del own[number]
        if not own:
            del self._of[job.seq]
        for block in job.blocks:
            guards = self._guards.get(block)
            if guards is not None and guards.pop(number, 0) is None and not guards:
                del self._guards[block]
        return job
