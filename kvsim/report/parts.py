"""Names and explanations of the parts of ledger classes (`memory.parts` in summary.json)."""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.report.numbers import percent
from kvsim.results.summary import RunSummary


class PartLook(NamedTuple):
    """Name and explanation of one part of a ledger class.

    name: its key in summary.json. owner: the ledger class. words: name for a narrow table. meaning:
    one sentence for a student.
    """

    name: str
    owner: str
    words: str
    meaning: str


PART_LOOKS: tuple[PartLook, ...] = (
    PartLook(
        "states",
        "used",
        "recurrent states",
        "States that running requests hold, as large after a thousand tokens as after ten; for a "
        "moment one more, until a new one is whole.",
    ),
    PartLook(
        "kept_for_readers",
        "used",
        "waiting to be read",
        "Prompts that a prefill engine has finished and keeps until a decode engine has read them.",
    ),
    PartLook(
        "in_transit",
        "used",
        "in transit",
        "What no request holds any more, and a copy to host memory or back holds until it ends.",
    ),
    PartLook(
        "arriving",
        "reserved",
        "arriving",
        "Slots taken for keys and values that are on their way: from a prefill engine, or from a "
        "tier behind the device.",
    ),
    PartLook(
        "draft_slots",
        "reserved",
        "for drafts",
        "Slots that drafts may be written to and states that they are tried on, but for what was "
        "accepted: what speculation takes of the pool.",
    ),
    PartLook(
        "left_behind",
        "overprovisioned",
        "left behind by windows",
        "Tokens that a window slid past, where every layer keeps every token: nobody reads them.",
    ),
    PartLook(
        "block_padding",
        "rounding",
        "padding of blocks",
        "What no token can fill: the rest of a block that must hold a state, and the layers that a "
        "short group lacks, since all blocks weigh the same.",
    ),
    PartLook(
        "cached_prompts",
        "cached",
        "prompts",
        "Blocks of full attention with prompt tokens: found by a prompt that begins alike.",
    ),
    PartLook(
        "cached_outputs",
        "cached",
        "outputs",
        "Blocks of full attention with generated tokens: found only by a conversation that goes "
        "on.",
    ),
    PartLook(
        "cached_windows",
        "cached",
        "windows",
        "Blocks of layers with a window. A hit needs those just before its end; what else is kept "
        "of them takes the room of what could be found.",
    ),
    PartLook(
        "cached_states",
        "cached",
        "checkpoints of states",
        "Recurrent states that a hit may go on from: each one is all that its layers know of the "
        "tokens before it, and of use at that place alone.",
    ),
)


class PartRow(NamedTuple):
    """One part of a ledger class, and its share of the pool in each run as text."""

    look: PartLook
    texts: list[str]


def part_rows(runs: Sequence[RunSummary], owner: str | None = None) -> list[PartRow]:
    """Rows of the parts that at least one run has. owner: only parts of this ledger class."""
    return [
        PartRow(look, [percent(_share(look, run)) for run in runs])
        for look in PART_LOOKS
        if owner in (None, look.owner) and any(look.name in _parts(run) for run in runs)
    ]


def _share(look: PartLook, run: RunSummary) -> float | None:
    """The part's share of the pool; None if the run does not record parts of its ledger class."""
    parts, memory = _parts(run), run.memory
    if look.name in parts:
        return parts[look.name]
    counted = any(each.name in parts for each in PART_LOOKS if each.owner == look.owner)
    return None if look.owner == "cached" and memory.time_mean.cached and not counted else 0.0


def _parts(run: RunSummary) -> dict[str, float]:
    return run.memory.parts or {}
