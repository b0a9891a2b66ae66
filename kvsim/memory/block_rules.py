"""How a version of an engine hands blocks out: one constant a version, one field a difference.

Whoever schedules says whose rules go with it; whoever keeps blocks reads the fields and never asks
for a version's name.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockRules:
    """What differs between versions in how blocks are kept.

    name: the version, for messages. null_blocks: blocks of the pool that nobody can have.
    default_watermark: share of the pool that an admission leaves free, where none is configured;
    watermark_when_idle: in an idle engine too, so what can never leave it free is refused.
    knows_watermark: it can be told to leave some of the pool free.
    spare_block: each decoding sequence asks for one free block before each token, needed or not.
    blank_first: blocks without known content return to the front of the free queue; else all
    return to the back.
    forks: samples of a request share its prompt by copy on write, where nothing else is asked for.
    several_tables: layers that keep other tokens than full attention have block tables of their
    own; else every layer keeps every token.
    commonest_sizes_groups: groups of layers are as large as the commonest kind, where that is less
    than 1.5 times the rarest, which spares the commonest a second, nearly empty group.
    unequal_blocks: where a token takes fewer bytes in some layers, their blocks hold more tokens;
    else such layers do not go together, and no engine starts. any_kinds: nor does one that matches
    prefixes, else, unless its layers are of full attention and one other kind.
    knows_retention: it knows prefix_cache_retention_interval; default_retention: what it takes
    where none is given, None for every full block of a window, and every state at a block's end.
    keeps_states: recurrent states are kept at the ends of blocks, for others to continue from.
    plants_junctions: what windows and states need is kept where prompts were seen to part.
    counts_last_token: the last state of a prompt is kept a token before its end at the latest, as a
    request with the same prompt can use it; else at the last block's end, be that the prompt's.
    cuts_at_blocks: chunks end at blocks' ends whatever they begin with; else they are whole blocks
    long, up to the last state's place.
    stops_at_hits: a chunk stops at the last unit of its prompt only where hits may end inside
    blocks; else wherever a unit is smaller than what hits are counted in.
    waits_for_return: windows hold what steps in flight still read; else what is scheduled counts as
    computed.
    retires_behind_gaps: states that nobody needs any more go back whatever lies between them; else
    those behind positions without one stay, but for the state of the allocation before.
    matches_inside: hits of a model with states can end inside blocks (prefix_match_unit).
    parts_inside: where blocks of windows are no units, hits end with blocks; else such a model with
    states in longer blocks fails at its first look-up.
    trims_every_kind: hits of all kinds of full attention are cut to what is common to all groups;
    else only those of the first kind.
    writes_inside: a prefill kernel may write states out within a chunk.
    names_returned: blocks that accepted drafts fill are known when their step returns; else, where
    steps do not overlap, when the sequence is scheduled next.
    counts_drops: where hits lose their last unit for a drafter, they are looked for a unit further,
    and what a resent prompt needs is kept a unit lower; else chunks alone end a block lower.
    """

    name: str
    null_blocks: int = 1
    default_watermark: float = 0.0
    watermark_when_idle: bool = False
    knows_watermark: bool = True
    spare_block: bool = False
    blank_first: bool = True
    forks: bool = False
    several_tables: bool = True
    commonest_sizes_groups: bool = True
    unequal_blocks: bool = True
    any_kinds: bool = True
    knows_retention: bool = True
    default_retention: int | None = 0
    keeps_states: bool = True
    plants_junctions: bool = True
    counts_last_token: bool = True
    cuts_at_blocks: bool = True
    stops_at_hits: bool = True
    waits_for_return: bool = True
    retires_behind_gaps: bool = True
    matches_inside: bool = True
    parts_inside: bool = True
    trims_every_kind: bool = True
    writes_inside: bool = True
    names_returned: bool = True
    counts_drops: bool = True


VLLM_0_33 = BlockRules("vllm-0.33")
VLLM_0_27 = BlockRules(
    "vllm-0.27",
    default_retention=None,
    counts_last_token=False,
    stops_at_hits=False,
    retires_behind_gaps=False,
    parts_inside=False,
    trims_every_kind=False,
    writes_inside=False,
    names_returned=False,
    counts_drops=False,
)
VLLM_0_22 = BlockRules(
    "vllm-0.22",
    knows_watermark=False,
    blank_first=False,
    knows_retention=False,
    default_retention=None,
    plants_junctions=False,
    counts_last_token=False,
    cuts_at_blocks=False,
    waits_for_return=False,
    retires_behind_gaps=False,
    matches_inside=False,
    trims_every_kind=False,
    writes_inside=False,
    names_returned=False,
    counts_drops=False,
)
VLLM_0_11 = BlockRules(
    "vllm-0.11",
    knows_watermark=False,
    blank_first=False,
    commonest_sizes_groups=False,
    unequal_blocks=False,
    any_kinds=False,
    knows_retention=False,
    default_retention=None,
    keeps_states=False,
    plants_junctions=False,
    waits_for_return=False,
    matches_inside=False,
    writes_inside=False,
    names_returned=False,
    counts_drops=False,
)
# Kwon et al., SOSP 2023, artifact.
VLLM_V0 = BlockRules(
    "vllm-v0",
    null_blocks=0,
    default_watermark=0.01,
    watermark_when_idle=True,
    spare_block=True,
    forks=True,
    several_tables=False,
    commonest_sizes_groups=False,
    unequal_blocks=False,
    knows_retention=False,
    default_retention=None,
    keeps_states=False,
    matches_inside=False,
    writes_inside=False,
    names_returned=False,
    counts_drops=False,
)
