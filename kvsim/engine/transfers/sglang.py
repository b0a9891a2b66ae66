"""SGLang's disaggregation: a router sends each request to a prefill engine and a decode engine at
once.
"""

from dataclasses import replace

from kvsim.engine.engine import Engine
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.engine.schedulers.sglang.options import Sglang
from kvsim.engine.schedulers.sglang_pd.decode import DecodeSide
from kvsim.engine.schedulers.sglang_pd.host_copies import LinkCopies
from kvsim.engine.schedulers.sglang_pd.prefill import PrefillSide
from kvsim.engine.schedulers.sglang_pd.sides import SglangDecode, SglangPrefill, side_of
from kvsim.engine.transfers.exchange import Exchange, Port, TransferDelays
from kvsim.engine.transfers.handoff import Handoff, prompt_of
from kvsim.memory import ALLOCATORS
from kvsim.memory.radix.options import Radix
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.support.parts import ServerParts
from kvsim.support.table import check

RESERVED_DECODE_TOKENS = 512  # --num-reserved-decode-tokens


class SglangHandoff(Handoff):
    """Engines with SGLang's sides. num_reserved_decode_tokens, decode_radix_cache,
    retraction_host_ratio: options of decode engines.
    """

    num_reserved_decode_tokens = RESERVED_DECODE_TOKENS
    decode_radix_cache = False
    retraction_host_ratio: float | None = None

    @classmethod
    def check(cls, spec: ReplicaSpec) -> None:
        kind = ALLOCATORS.name_of(spec.allocator)
        check(ServerParts(transfers="sglang", stages=spec.stages, allocator=kind))

    def prefill_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        check(ServerParts(transfers="sglang", storage=_stores(spec), allocator="radix"))
        return replace(spec, scheduler=SglangPrefill.parse(_flags(spec), "scheduler"))

    def decode_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        flags = _flags(spec) | {
            "num_reserved_decode_tokens": self.num_reserved_decode_tokens,
            "retraction_host_ratio": self.retraction_host_ratio,
        }
        self._copies = spec.host_link()
        allocator = spec.allocator
        parts = ServerParts(transfers="sglang", storage=_stores(spec), allocator="radix")
        hosts, caches = allocator.hierarchical, self.decode_radix_cache
        check(parts._replace(decodes=True, hicache=hosts, caches=caches))
        if isinstance(allocator, Radix) and not self.decode_radix_cache:
            allocator = allocator.model_copy(update={"disable_radix_cache": True})
        scheduler = SglangDecode.parse(flags, "scheduler")
        return replace(spec, allocator=allocator, scheduler=scheduler)

    def connect(self, prefill: list[Engine], decode: list[Engine]) -> None:
        self._prefill, self._decode = prefill, decode
        spec = self.spec
        delays = TransferDelays(
            spec.handshake_ps,
            spec.notice_ps,
            spec.notify_ps,
            spec.bootstrap_timeout_ps,
            spec.waiting_timeout_ps,
        )
        exchange = Exchange(self.network, delays, self.failed_reads, self.abandoned)
        for engine in prefill:
            sender = side_of(engine.scheduler)
            assert isinstance(sender, PrefillSide)
            sender.connect(exchange, Port(self.env, engine.cut))
        for engine in decode:
            receiver = side_of(engine.scheduler)
            assert isinstance(receiver, DecodeSide)
            copies = LinkCopies(self._copies, engine.scheduler.allocator.token_bytes)
            receiver.connect(exchange, Port(self.env, engine.cut), copies)

    def submit(self, request: Request, prefill: int, decode: int) -> None:
        self._prefill[prefill].submit(prompt_of(request))
        self._decode[decode].submit(request)


def _stores(spec: ReplicaSpec) -> bool:
    """Whether the engine has an L3 storage after its hierarchical cache."""
    allocator = spec.allocator
    return isinstance(allocator, Radix) and allocator.hicache_storage_backend is not None


def _flags(spec: ReplicaSpec) -> dict[str, object]:
    scheduler = spec.scheduler
    if not isinstance(scheduler, Sglang):
        raise InputError(
            "prefill and decode engines have schedulers of one kind",
            where="scheduler.kind",
            value=SCHEDULERS.name_of(scheduler),
            remedy='kind = "sglang" on both sides',
        )
    return scheduler.model_dump(exclude_unset=True)
