"""The `[[tier]]` tables of a scenario: tiers after the device, the nearest first."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import GIB, PS_PER_US
from kvsim.support.parts import EVERY_PART

if TYPE_CHECKING:
    from kvsim.engine.connectors.connector import Connector
    from kvsim.engine.connectors.lane import Lane
    from kvsim.engine.connectors.offloading.disk import Disk
    from kvsim.engine.connectors.offloading.settings import OffloadedGroup
    from kvsim.engine.connectors.shared import Shared

BYTES_PER_GB = 10**9


class StageSite(NamedTuple):
    """One stage of a pipeline.

    group_bytes: bytes of a block of each layer group on this stage. host_bytes_per_s: rate of its
    device's link to host memory, in one direction.
    """

    group_bytes: tuple[int, ...]
    host_bytes_per_s: int


class TierSite(NamedTuple):
    """Facts about the engine that tiers are built for.

    groups: layer groups, each with a chunk of one block. block_bytes: bytes of a device block, over
    all its layers. In a pipeline both are for the first stage. ranks: number of tensor-parallel
    ranks of all stages; each copies its part over its own link. prefix_caching, retention_tokens:
    options of the device's cache. host_bytes_per_s: rate of each link, in one direction. stages:
    stages of a pipeline; none if there is one stage only.
    """

    groups: "tuple[OffloadedGroup, ...]"
    block_bytes: int
    ranks: int
    prefix_caching: bool
    retention_tokens: int | None
    host_bytes_per_s: int
    max_num_batched_tokens: int
    stages: tuple[StageSite, ...] = ()


class ConnectorPlan(NamedTuple):
    """How to build a connector, and what it needs.

    build: makes the connector of an engine, given the tiers shared in the fleet. holds: its copies
    hold device blocks. asks_blocks: it asks for block ids. serves: other parts that it works with,
    by their names in `kvsim.support`.
    """

    build: "Callable[[Shared], Connector]"
    holds: bool = False
    asks_blocks: bool = True
    serves: frozenset[str] = EVERY_PART


class TierOptions(Options):
    """Options of one kind of tier; its fields are the keys of `[[tier]]` other than `kind`.

    serves: other parts that the tier works with, by their names in `kvsim.support`. ranks_share:
    its size is for all ranks together (True) or for each rank (False). None: it has no size, or one
    that does not count KV of all layers and tokens.
    """

    serves: ClassVar[frozenset[str]] = frozenset()
    ranks_share: ClassVar[bool | None] = None

    def connector(self, site: TierSite, behind: Sequence["TierOptions"]) -> ConnectorPlan:
        """The connector of an engine with this as first tier and `behind` as the tiers after it.

        InputError if no engine has this chain of tiers.
        """
        raise InputError(
            "this tier cannot be the first",
            where="tier.0.kind",
            remedy='begin with kind = "vllm-offloading"',
        )

    @property
    def shared_key(self) -> str:
        """The option that lets replicas of a fleet share this tier; "" if each replica has
        its own.
        """
        return ""

    def behind_host(
        self, chunk_bytes: int, chunk_tokens: tuple[int, ...], shared: "Shared"
    ) -> "Disk":
        """Build this tier to follow host memory; InputError if it cannot.

        chunk_bytes: size of a slot of host memory. chunk_tokens[g]: tokens of a chunk in layer
        group g.
        """
        raise InputError(
            "this tier cannot follow host memory",
            where="tier.1.kind",
            remedy='kind = "file-system"',
        )


class LinkOptions(TierOptions):
    """A tier on the link between a device and its host.

    store_gb_per_s, load_gb_per_s: of the link out of a device and into it, GB (10**9 bytes) a
        second; not given: the device's to its host.
    latency_us: before each copy.
    """

    store_gb_per_s: float | None = Field(None, gt=0)
    load_gb_per_s: float | None = Field(None, gt=0)
    latency_us: float = Field(0.0, ge=0)

    def lane(self, gb_per_s: float | None, site: TierSite) -> "Lane":
        """One direction of each rank's link, at gb_per_s or, if None, at the device's rate."""
        from kvsim.engine.connectors.lane import Lane  # few scenarios have tiers

        speed = site.host_bytes_per_s if gb_per_s is None else round(gb_per_s * BYTES_PER_GB)
        return Lane(round(self.latency_us * PS_PER_US), speed)

    def host_chunks(self, key: str, chunk_bytes: int, smaller: str) -> int:
        """Number of chunks in host memory; InputError if it is 0.

        key: the option with the size in GiB. smaller: the option that makes chunks smaller, named
        in the error.
        """
        size_gib = getattr(self, key)
        chunks = int(size_gib * GIB) // chunk_bytes
        if not chunks:
            raise InputError(
                "host memory holds no chunk",
                where=f"tier.0.{key}",
                value=f"{size_gib:g} GiB",
                limit=f"at least {chunk_bytes:,} bytes",
                remedy=f"raise it, or {smaller}",
            )
        return chunks


class HostTierOptions(LinkOptions):
    """Host memory as the tier after the device, as a KV connector of vLLM uses it.

    kv_offloading_size: GiB of host memory, of all ranks together.
    """

    ranks_share: ClassVar[bool | None] = True

    kv_offloading_size: float = Field(gt=0)


def refuse_behind(behind: Sequence[TierOptions], what: str, place: int = 1) -> None:
    """Raise InputError if there is a tier at index `place`, after a tier that supports none."""
    if behind:
        raise InputError(
            f"no tier can follow {what}",
            where=f"tier.{place}.kind",
            remedy='leave it out, or begin with kind = "vllm-offloading"',
        )
