"""The parts of a server or a fleet that may not run together."""

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

EVERY_PART = frozenset((STAGES, DRAFTS, TRANSFERS, SPECIAL, CONNECTORS))


class ServerParts(NamedTuple):
    """The parts of one server or fleet, as far as they are known.

    stages: of the pipeline. depth: steps in flight. ahead: asynchronous scheduling. swaps: victims
    are swapped. semantics: version of vLLM that schedules, if it is before 0.33. allocator: its
    kind. no_slots: it has none for drafts. caches: prefixes, in a cache of the device. options: of
    the allocator, those that are set. hicache: SGLang's host memory; storage: one after it.
    decodes: a replica that only decodes. sglang: its scheduler;
    None: not known. unplanned: layers have windows or states, and no plan of blocks. layers: kinds
    of layers beyond full attention, of "windows", "states", "own blocks" and "chunks". grouped:
    they are in groups of blocks. tables: number of block tables. stage_bytes: of a block, on each
    stage. full_blocks: tokens of a block of each kind of full attention. parted: hits could end
    inside blocks of states where no block of some window ends. rules: the version of vLLM by name,
    where it fails with one of both.

    tiers: kinds of `[[tier]]`; place: of the one asked about. serves: parts that they run with.
    connector: there is one, maybe of no tier. shared: the key of a tier that replicas share.
    drafts: tokens are drafted; one_pass: by one pass of the drafter. looks_up: they are found in
    the text. unlike: the version schedules drafts by other rules. transfers: engine of prefill and
    decode replicas, "other" if it has none; schedulers: of both sides. export: a format that starts
    the server. special: "items" or "an
    adapter", where a request asks for it. asker: its id. schedules: parts that
    the scheduler runs with. whole_form: a step-time form of whole models. context: GPUs that share
    a context.

    lockstep: ranks step together. changes: replicas start or die. failure: the key of one that
    names replica `dies`. cells: of the fleet. clients: there is a limit of requests in flight.
    alone: there is one replica.
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
    changes: bool = False
    failure: str = ""
    dies: int = 0
    cells: int = 1
    clients: bool = False
    alone: bool = False
