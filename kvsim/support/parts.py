"""The parts of a server or a fleet that rows of refused pairs compare."""

from typing import NamedTuple

STAGES = "pipeline stages"
DRAFTS = "drafts"
TRANSFERS = "prefill and decode replicas"
SPECIAL = "images and adapters"
TIERS = "tiers"
HICACHE = "a hierarchical cache (SGLang)"
LOCKSTEP = "ranks that step together"
CELLS = "cells of a fleet"
CHANGES = "failures and autoscalers"
SHARED = "shared tiers"
CONTEXT = "decode context parallelism"
OLDER = "vLLM before 0.33"
SWAP = "swapping"

INSIDE_BLOCKS = "prefix_match_unit", "prefill_checkpoint_alignment"
CONNECTORS = "tiers, and P/D"

EVERY_PART = frozenset((STAGES, DRAFTS, TRANSFERS, SPECIAL, CONNECTORS, LOCKSTEP))


class ServerParts(NamedTuple):
    """The properties of one server or fleet that decide which combinations are supported, as far as
    the caller knows them.

    stages: pipeline stages. depth: steps in flight. ahead: asynchronous scheduling. swaps:
    preempted sequences are swapped. semantics: version of vLLM's scheduler if it is before 0.33.
    allocator: kind of the allocator. no_slots: the allocator has no slots for drafts. hicache:
    SGLang's hierarchical cache. storage: L3 storage of that cache. decodes: a decode replica.
    sglang: the scheduler is SGLang's; None: not known. unplanned: layers have windows or states,
    and no block groups are planned for them. layers: kinds of layers other than full attention:
    "windows", "states", "own blocks" and "chunks". tables: number of block tables. grouped: layers
    are in block groups. stage_bytes: bytes of a block on each stage. full_blocks: block size in
    tokens of each kind of full attention. parted: hits could end inside blocks of states at places
    where no block of some window ends. rules: version of vLLM that fails with `parted`, or with
    several `full_blocks`. caches: the device has a prefix cache. options: (name, value) of
    allocator options that are set.

    tiers: kinds of `[[tier]]` tables. place: index of the tier that is checked. serves: parts that
    the tier works with. connector: there is a KV connector, of a tier or of P/D disaggregation.
    shared: key of a tier that replicas share. drafts: speculative decoding. one_pass: the drafter
    drafts all tokens in one pass. looks_up: drafts are found in the text, as by ngram. unlike: this
    version schedules drafts by other rules. transfers: engine of prefill and decode replicas;
    "other" if neither vLLM nor SGLang. schedulers: kinds of scheduler on both sides. export: format
    of an export that starts the server. special: "items" or "an adapter", if a request has one.
    asker: id of that request. schedules: parts that the scheduler works with. whole_form: a
    step-time form of whole models. context: number of GPUs that share a context.

    lockstep: data-parallel ranks step together. no_tiers: these ranks have no KV connector, as
    under `sglang-dp`. changes: replicas start or fail. failure: key of the failure of replica
    `dies`. cells: number of cells of the fleet. clients: the number of requests in flight is
    limited. rounds: a turn waits for the turn before of all conversations. alone: there is one
    replica.
    """

    stages: int = 1
    depth: int = 1
    ahead: bool = True
    swaps: bool = False
    semantics: str = ""
    allocator: str = "paged"
    no_slots: bool = False
    hicache: bool = False
    storage: bool = False
    decodes: bool = False
    sglang: bool | None = None
    unplanned: bool = False
    layers: frozenset[str] = frozenset()
    tables: int = 1
    grouped: bool = False
    stage_bytes: tuple[int, ...] = ()
    full_blocks: tuple[int, ...] = ()
    parted: bool = False
    rules: str = ""
    caches: bool = True
    options: tuple[tuple[str, object], ...] = ()
    tiers: tuple[str, ...] = ()
    place: int = 0
    serves: frozenset[str] = EVERY_PART
    connector: bool = False
    shared: str = ""
    drafts: bool = False
    one_pass: bool = False
    looks_up: bool = False
    unlike: bool = False
    transfers: str = ""
    schedulers: str = ""
    export: str = ""
    special: str = ""
    asker: str = ""
    schedules: frozenset[str] = EVERY_PART
    whole_form: str = ""
    context: int = 1
    lockstep: bool = False
    no_tiers: bool = False
    changes: bool = False
    failure: str = ""
    dies: int = 0
    cells: int = 1
    clients: bool = False
    rounds: bool = False
    alone: bool = False
