"""A recorded schedule as input: engine settings, a cost in ticks, and requests.

The format is documented in docs/schedules.md; times are ticks of a virtual clock, kept here as
microseconds (any unit would do, only equality matters).
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from zlib import crc32

from pydantic import Field, model_validator

from kvsim.engine.policies.queue import Order
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers.continuous import Continuous
from kvsim.engine.schedulers.vllm_versions import VERSIONS, VersionName
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.units import PS_PER_US
from kvsim.request import Request, TokenRuns

TICK_PS = PS_PER_US
MOST_TICKS = 10**9  # of the cost of a step
LATEST = 10**12  # ticks: the last arrival
MOST_TOKENS = 1 << 20  # of a prompt or a segment: 20 bits of a token's id are its place
Length = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
TokenId = Annotated[int, Field(ge=0)]


class CaseGroup(Options):
    """groups: block tables for layers of one kind. window_tokens: of sliding ones. block_size: as
    the engine planned it; the other keys say what it planned besides.
    """

    kind: Literal["full", "sliding", "recurrent"]
    groups: int = Field(1, ge=1, le=1000)
    window_tokens: int | None = Field(None, ge=1)
    block_size: int | None = Field(None, ge=1, le=MOST_TOKENS)
    speculative_blocks: int = Field(0, ge=0)
    checkpoint_blocks: int = Field(0, ge=0)
    checkpoint_alignment: int | None = Field(None, ge=1)
    extra_retained_tokens: int = Field(0, ge=0)
    drops: bool = False

    @model_validator(mode="after")
    def _a_window_slides(self) -> "CaseGroup":
        if (self.kind == "sliding") != (self.window_tokens is not None):
            raise ValueError("a sliding group, and no other, has window_tokens")
        return self


class CaseEngine(Options):
    """The settings of the recorded engine. kv_groups: its block tables, in its order.

    Of an engine that planned them itself, as served: prefix_cache_retention_interval (None: dense),
    scheduler_block_size, prefix_match_unit and hit_alignment, in tokens; max_in_flight_tokens;
    mamba_cache_mode; speculative.
    """

    num_gpu_blocks: int = Field(ge=2, le=MOST_TOKENS)
    block_size: int = Field(ge=1, le=MOST_TOKENS)
    max_num_seqs: int = Field(ge=1)
    max_num_batched_tokens: int = Field(ge=1)
    max_model_len: int = Field(ge=2, le=MOST_TOKENS)
    chunked_prefill: bool = True
    prefix_caching: bool = True
    long_prefill_token_threshold: int = Field(0, ge=0)
    policy: Order = "fcfs"
    async_scheduling: bool = False
    reserve_full_isl: bool = True
    watermark: float = Field(0.0, ge=0.0, lt=1.0)
    semantics: VersionName = "vllm-0.33"
    kv_groups: tuple[CaseGroup, ...] = Field((CaseGroup(kind="full"),), min_length=1)
    prefix_cache_retention_interval: int | None = Field(None, ge=0)
    scheduler_block_size: int | None = Field(None, ge=1)
    prefix_match_unit: int | None = Field(None, ge=1)
    hit_alignment: int | None = Field(None, ge=1)
    max_in_flight_tokens: int | None = Field(None, ge=1)
    mamba_cache_mode: Literal["align", "none"] | None = None
    speculative: dict[str, Any] | None = None

    @property
    def as_served(self) -> bool:
        """Whether the engine planned its groups itself; its rows then tell blocks by group."""
        return self.max_in_flight_tokens is not None

    @model_validator(mode="after")
    def _rarest_kind_in_one_table(self) -> "CaseEngine":
        if min(group.groups for group in self.kv_groups) > 1:
            raise ValueError("one kind of kv_groups must have groups = 1: the rarest layers")
        return self

    def layout(self) -> KVLayout:
        """One layer a block table, so that a block is block_size bytes."""
        return KVLayout(
            tuple(
                KVGroup(
                    group.kind,
                    group.groups,
                    group.groups if group.kind != "recurrent" else 0,
                    group.window_tokens,
                    group.groups if group.kind == "recurrent" else 0,
                )
                for group in self.kv_groups
            )
        )

    def _check_modelled(self) -> None:
        """InputError for what the simulated engine does not do."""
        inner_hits = self.prefix_match_unit is not None and self.prefix_match_unit < self.block_size
        for key, beyond in (
            ("speculative", self.speculative is not None),
            ("prefix_match_unit", inner_hits),
            ("kv_groups", any(group.checkpoint_blocks for group in self.kv_groups)),
        ):
            if beyond:
                raise InputError("the simulated engine does not do this", where=f"engine.{key}")

    def replica_spec(self) -> ReplicaSpec:
        """The engine that these settings make, one step at a time."""
        self._check_modelled()
        knows_full_isl = VERSIONS[self.semantics].reserves_full_isl
        interval = self.prefix_cache_retention_interval
        return ReplicaSpec(
            Paged(
                block_size=self.block_size,
                enable_prefix_caching=self.prefix_caching,
                watermark=self.watermark,
                prefix_cache_retention_interval="none" if interval is None else interval,
            ),
            Continuous(
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
                enable_chunked_prefill=self.chunked_prefill,
                long_prefill_token_threshold=self.long_prefill_token_threshold,
                policy=self.policy,
                scheduler_reserve_full_isl=self.reserve_full_isl and knows_full_isl,
                async_scheduling=self.async_scheduling,
                semantics=self.semantics,
            ),
            capacity_bytes=self.num_gpu_blocks * self.block_size,
            layout=self.layout(),
            max_model_len=self.max_model_len,
            copy_bytes_per_s=1,
            host_bytes_per_s=1,
            max_steps=1,
        )


class CaseCost(Options):
    """Ticks of a step: a + b * prefill tokens + c * decoding requests; nothing for an empty one."""

    a: int = Field(ge=0, le=MOST_TICKS)
    b: int = Field(ge=0, le=MOST_TICKS)
    c: int = Field(ge=0, le=MOST_TICKS)


class CaseRequest(Options):
    """One request; its prompt as ids, as [segment, length] pieces, or as a private length."""

    id: str
    arrival: int | None = Field(None, ge=0, le=LATEST)
    arrival_step: int | None = Field(None, ge=0)
    prompt_ids: list[TokenId] | None = Field(None, min_length=1)
    prompt: list[tuple[str, Length]] | None = Field(None, min_length=1)
    prompt_len: Length | None = None
    out: Length
    priority: int = 0
    n: int = Field(1, ge=1, le=1000)
    out_name: str | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> "CaseRequest":
        if sum(given is not None for given in (self.prompt_ids, self.prompt, self.prompt_len)) != 1:
            raise ValueError("give one of prompt_ids, prompt and prompt_len")
        if (self.arrival is None) == (self.arrival_step is None):
            raise ValueError("give one of arrival and arrival_step")
        return self

    def runs(self) -> TokenRuns:
        """The prompt's token ids as runs: token i of segment s is (crc32(s) << 20) | i."""
        if self.prompt_ids is not None:
            return tuple((token, 1) for token in self.prompt_ids)
        pieces = self.prompt or [(f"p:{self.id}", self.prompt_len or 0)]
        return tuple((crc32(name.encode()) << 20, length) for name, length in pieces)

    def names(self) -> list[str]:
        """What the rows call its n samples."""
        return [self.id] if self.n == 1 else [f"{sample}_{self.id}" for sample in range(self.n)]

    def requests(self) -> Iterator[Request]:
        """Its n samples, as the engine's front end submits them."""
        runs = self.runs()
        for name in self.names():
            yield Request(
                id=name,
                arrival_ps=(self.arrival or 0) * TICK_PS,
                prompt_tokens=sum(length for _, length in runs),
                output_tokens=self.out,
                priority=self.priority,
                prompt_runs=runs,
                output_start=crc32((self.out_name or f"o:{name}").encode()) << 20,
            )


class Case(Options):
    """A recorded schedule's input.

    model, serve, gdn_prefill: what an engine as served was given, for whoever plans from them.
    accept: how many drafts each verification accepts, in turn.
    """

    name: str
    desc: str = ""
    model: dict[str, Any] | None = None
    serve: dict[str, Any] | None = None
    gdn_prefill: str | None = None
    accept: tuple[int, ...] = ()
    engine: CaseEngine
    cost: CaseCost
    requests: list[CaseRequest]

    @model_validator(mode="after")
    def _each_name_once(self) -> "Case":
        names = [name for request in self.requests for name in request.names()]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"two requests are named {twice!r}")
        return self


def read_case(path: Path) -> Case:
    """The case in a JSON file (`.gz` accepted); InputError names the key at fault."""
    return Case.parse(read_object(path), str(path))


def read_expectation(path: Path) -> list[dict[str, Any]]:
    """The recorded rows beside the case: NAME.expected.json.gz or NAME.expected.json."""
    for suffix in (".expected.json.gz", ".expected.json"):
        beside = path.with_name(path.name.removesuffix(".json") + suffix)
        if beside.exists():
            steps = read_object(beside).get("steps")
            if not isinstance(steps, list) or not all(isinstance(row, dict) for row in steps):
                raise InputError("no list of rows under 'steps'", where=str(beside))
            return steps
    raise InputError(
        "no expectation beside the case",
        where=str(path),
        remedy=f"expected {path.name.removesuffix('.json')}.expected.json.gz in the same folder",
    )
