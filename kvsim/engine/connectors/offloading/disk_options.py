"""Options of the file system tier, which comes after host memory."""

from typing import ClassVar

from pydantic import Field

from kvsim.engine.connectors.lane import Lane
from kvsim.engine.connectors.offloading.disk import Disk
from kvsim.engine.connectors.offloading.folder import Folder
from kvsim.engine.connectors.offloading.keys import ChunkKeys
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.connectors.tiers import BYTES_PER_GB, TierOptions
from kvsim.plumbing.units import PS_PER_US
from kvsim.support.parts import LOCKSTEP, TRANSFERS


class FileSystemTier(TierOptions):
    """Files in the tier after host memory: vLLM's tier of type "fs". Files are never deleted.

    n_read_threads, n_write_threads: each copies one chunk after the other; those of one kind help
        the other when they have nothing to do.
    read_gb_per_s, write_gb_per_s: of one thread, GB (10**9 bytes) a second.
    read_latency_us, write_latency_us: of each chunk.
    lookup_us: to look for one file, which one thread does.
    shared: all replicas of a fleet read and write one folder, as on a network file system.
    link_gb_per_s: of the folder, GB a second for all reads together and as much for all writes;
        not given: only the threads limit them.
    """

    serves: ClassVar[frozenset[str]] = frozenset((LOCKSTEP, TRANSFERS))

    n_read_threads: int = Field(16, ge=1, le=4096)
    n_write_threads: int = Field(16, ge=1, le=4096)
    read_gb_per_s: float = Field(1.0, gt=0)
    write_gb_per_s: float = Field(1.0, gt=0)
    read_latency_us: float = Field(100.0, ge=0)
    write_latency_us: float = Field(100.0, ge=0)
    lookup_us: float = Field(5.0, ge=0)
    shared: bool = False
    link_gb_per_s: float | None = Field(None, gt=0)

    @property
    def shared_key(self) -> str:
        return "shared" if self.shared else ""

    def behind_host(self, chunk_bytes: int, chunk_tokens: tuple[int, ...], shared: Shared) -> Disk:
        folder = self._folder(chunk_bytes, chunk_tokens, shared)
        return Disk(
            Lane(round(self.read_latency_us * PS_PER_US), round(self.read_gb_per_s * BYTES_PER_GB)),
            Lane(
                round(self.write_latency_us * PS_PER_US), round(self.write_gb_per_s * BYTES_PER_GB)
            ),
            chunk_bytes,
            round(self.lookup_us * PS_PER_US),
            self.n_read_threads,
            self.n_write_threads,
            folder,
        )

    def _folder(self, chunk_bytes: int, chunk_tokens: tuple[int, ...], shared: Shared) -> Folder:
        gb_per_s = self.link_gb_per_s
        link_bytes_per_s = None if gb_per_s is None else round(gb_per_s * BYTES_PER_GB)
        if not self.shared:
            return Folder(None, link_bytes_per_s)
        tokens = ", ".join(f"{each:,}" for each in chunk_tokens)
        link = "" if gb_per_s is None else f", link_gb_per_s = {gb_per_s:g}"
        return shared.part(
            "tier.1.shared",
            f"chunks of {tokens} tokens and {chunk_bytes:,} bytes{link}",
            lambda: Folder(ChunkKeys(chunk_tokens), link_bytes_per_s),
        )
