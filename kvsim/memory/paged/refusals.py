"""Options of paged memory that cannot be combined: one row for each refusal, checked in order."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kvsim.layout import KVGroup
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.rules import BlockRules


class Asked(NamedTuple):
    """The allocator requested by the options.

    options: values by key, including defaults. set_keys: keys that the user set. memory: the pool,
    the engine's version and the drafter. several_tables: groups of layers have block tables of
    their own. caches: prefixes are cached. keeps_states: recurrent states are cached too.
    """

    options: Mapping[str, object]
    set_keys: frozenset[str]
    memory: MemorySpec
    several_tables: bool
    caches: bool
    keeps_states: bool

    @property
    def rules(self) -> BlockRules:
        """Block rules of the engine's version."""
        return self.memory.rules

    @property
    def attending(self) -> list[KVGroup]:
        """Groups of layers with keys and values, as opposed to recurrent states."""
        return [group for group in self.memory.layout.groups if not group.state_bytes]

    @property
    def later(self) -> str:
        """The remedy if the version does not support the model's layers: a newer version."""
        if len(self.attending) < len(self.memory.layout.groups):
            return "a later version"
        return "a later version, or allocator.disable_hybrid_kv_cache_manager = true"


class Refused(NamedTuple):
    """A row of the table of refusals.

    key: the option. where: full name of the option, if it is not an allocator's. refused: whether
    the combination is refused if the option has a value. reason, remedy: text of the error.
    """

    key: str
    refused: Callable[[Asked], bool]
    reason: Callable[[Asked], str] | str
    remedy: Callable[[Asked], str] | str = "leave it out"
    where: str = ""
    value: Callable[[Asked], object] | None = None


def check(asked: Asked) -> None:
    """Raise InputError for the first row that refuses `asked`."""
    for row in ROWS:
        if (row.where or _has_value(asked, row.key)) and row.refused(asked):
            reason = row.reason if isinstance(row.reason, str) else row.reason(asked)
            remedy = row.remedy if isinstance(row.remedy, str) else row.remedy(asked)
            value = asked.options[row.key] if row.value is None else row.value(asked)
            raise InputError(
                reason, where=row.where or f"allocator.{row.key}", value=value, remedy=remedy
            )


_IDLE = {"sharing": (None, "cache"), "watermark": (None, 0.0)}


def _has_value(asked: Asked, key: str) -> bool:
    """Whether an option has a value."""
    return asked.options[key] not in _IDLE.get(key, (None,))


# --- conditions --------------------------------------------------------------------------------


def _drafts(asked: Asked) -> bool:
    return asked.memory.speculation is not None


def _drops_last_block(asked: Asked) -> bool:
    return asked.memory.speculation is not None and asked.memory.speculation.drops_last_block


def _chains_over_kinds(asked: Asked) -> bool:
    drafts, groups = asked.memory.speculation, asked.memory.layout.groups
    return _drops_last_block(asked) and bool(drafts and drafts.redrafted_tokens) and len(groups) > 1


def _unequal_slots(asked: Asked) -> bool:
    slots = {ceil_div(group.bytes_per_token, group.layers) for group in asked.attending}
    return asked.several_tables and len(slots) > 1 and not asked.rules.unequal_blocks


def _too_many_kinds(asked: Asked) -> bool:
    attending = asked.attending
    windows = [group for group in attending if group.kind == "sliding"]
    beside_full = len(attending) - len(windows) == len(windows) == 1
    many = len(attending) > 1 and not beside_full
    return asked.several_tables and many and asked.caches and not asked.rules.any_kinds


def _own_tokens(asked: Asked) -> int | None:
    """Block size in tokens of the full-attention cache, for models with separately sized caches."""
    own = (group.own_block for group in asked.attending if group.kind == "mla")
    return max((block.tokens for block in own if block), default=None)


def _other_block_size(asked: Asked) -> bool:
    own = _own_tokens(asked)
    set_apart = own is not None and "block_size" in asked.set_keys
    return asked.several_tables and set_apart and asked.options["block_size"] != own


def _ungrouped(asked: Asked) -> bool:
    return asked.memory.layout.has_own_blocks and bool(asked.options[UNGROUPED])


def _several_tables(asked: Asked) -> bool:
    return asked.several_tables


def _keeps_no_states(key: str) -> Callable[[Asked], bool]:
    def refused(asked: Asked) -> bool:
        uncached = asked.several_tables and not asked.caches
        return uncached and key in asked.set_keys and bool(asked.options[key])

    return refused


def _no_value(asked: Asked) -> object:
    return None


NOT_DRAFTED = "not where tokens are drafted ahead", "leave it out, or speculative_config"
ONE_TABLE = (
    "not for block tables in several groups of layers",
    "leave it out, or set disable_hybrid_kv_cache_manager = true",
)
OVERWRITTEN = (
    "a recurrent state is overwritten in every step, no prefix of it is kept",
    "leave the key out",
)
OTHER_VERSION = "not of the scheduler's version"
NO_STATE = "no recurrent state is kept"
RETENTION = "prefix_cache_retention_interval"
UNGROUPED = "disable_hybrid_kv_cache_manager"

ROWS = (
    Refused(
        "prefill_checkpoint_alignment",
        _drops_last_block,
        "a state written out within a chunk is a block too far for hits that lose one",
        "leave it out, or speculative_config.disable_lookahead_block_hashes",
    ),
    Refused("sharing", _drafts, *NOT_DRAFTED),
    Refused("host_cache_gib", _drafts, *NOT_DRAFTED),
    Refused("watermark", lambda asked: not asked.rules.knows_watermark, OTHER_VERSION),
    Refused(
        "",
        _unequal_slots,
        "it does not start with layers in which a token takes unequally many bytes",
        lambda asked: asked.later,
        where="scheduler.semantics",
        value=lambda asked: asked.rules.name,
    ),
    Refused(
        "",
        _too_many_kinds,
        lambda asked: (
            "it matches prefixes of full attention and one other kind of layers at most, and "
            f"does not start with {len(asked.attending)} kinds"
        ),
        lambda asked: f"{asked.later}, or allocator.enable_prefix_caching = false",
        where="scheduler.semantics",
        value=lambda asked: asked.rules.name,
    ),
    Refused(
        "block_size",
        _other_block_size,
        lambda asked: (
            "the model's caches have blocks of their own, the largest of "
            f"{_own_tokens(asked)} tokens"
        ),
    ),
    Refused(UNGROUPED, _ungrouped, "the model's caches have blocks of their own"),
    Refused("sharing", _several_tables, *ONE_TABLE),
    Refused("host_cache_gib", _several_tables, *ONE_TABLE),
    *(
        Refused(key, _keeps_no_states(key), *OVERWRITTEN, value=_no_value)
        for key in ("enable_prefix_caching", "eviction_policy")
    ),
    Refused(
        "prefill_checkpoint_alignment", lambda asked: not asked.rules.writes_inside, OTHER_VERSION
    ),
    Refused("prefill_checkpoint_alignment", lambda asked: not asked.keeps_states, NO_STATE),
    Refused("prefix_match_unit", lambda asked: not asked.rules.matches_inside, OTHER_VERSION),
    Refused(
        "prefix_match_unit",
        lambda asked: not (asked.several_tables and asked.caches),
        NO_STATE,
    ),
    Refused(
        RETENTION,
        lambda asked: not asked.rules.knows_retention and asked.options[RETENTION] != "none",
        lambda asked: f"{asked.rules.name} does not know it, it keeps every block",
    ),
    Refused(
        RETENTION,
        lambda asked: not asked.several_tables and asked.options[RETENTION] not in (0, "none"),
        "no layer has a window or a state of which anything could be left out",
    ),
)
