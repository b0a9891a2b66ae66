"""Colour, hatch and explanation of each of the ten ledger classes, for pages.

The hues are distinguishable with any colour vision (Okabe and Ito, "Color Universal Design", 2008).
Used memory is blue, held or wasted memory has warm hues, free memory is grey. External
fragmentation is free and lost at once, so it is grey with a hatch.
"""

from typing import Any, Literal, NamedTuple

Family = Literal["working", "held, not working", "free"]


class ClassLook(NamedTuple):
    """Colour, hatch and explanation of one ledger class.

    name: the ledger's name. family: the group of classes it belongs to. colour, ink: colour of the
    area, and of text on it. pattern: plotly's name of the hatch; empty for none. meaning: one
    sentence for a student.
    """

    name: str
    family: Family
    colour: str
    ink: str
    pattern: str
    meaning: str


# In the order they are stacked: work at the bottom, waste on it, free memory on top.
LOOKS: tuple[ClassLook, ...] = (
    ClassLook(
        "used",
        "working",
        "#0072b2",
        "#ffffff",
        "",
        "Keys and values of tokens that live requests are attending to. The only class that works; "
        "blocks shared by several requests count once.",
    ),
    ClassLook(
        "reserved",
        "held, not working",
        "#e69f00",
        "#1a1a1a",
        "",
        "Set aside for tokens that are still to be generated, or for drafts. It will be used, but "
        "until then nobody else may have it.",
    ),
    ClassLook(
        "overprovisioned",
        "held, not working",
        "#d55e00",
        "#ffffff",
        "",
        "Set aside for tokens that never come, because the request ends sooner than its buffer "
        "(often called internal fragmentation), or left behind by a window and still held.",
    ),
    ClassLook(
        "rounding",
        "held, not working",
        "#f0e442",
        "#1a1a1a",
        "",
        "Given beyond what was asked, because memory is handed out in fixed sizes: a power of two, "
        "an aligned segment, a block that a smaller group of layers or a recurrent state does not "
        "fill.",
    ),
    ClassLook(
        "transient",
        "held, not working",
        "#cc79a7",
        "#1a1a1a",
        "",
        "The old buffer while its content is copied into a larger one: for a moment both are held.",
    ),
    ClassLook(
        "metadata",
        "held, not working",
        "#404040",
        "#ffffff",
        "",
        "What no request can ever have: bookkeeping, the null block, the odd end of the pool.",
    ),
    ClassLook(
        "cached",
        "free",
        "#7cc4ec",
        "#1b1b1b",
        "",
        "Left behind by finished requests, or by a window that slid past it, and kept in case a "
        "new prompt begins the same way: blocks of tokens, and recurrent states. It is given up as "
        "soon as somebody needs the room.",
    ),
    ClassLook(
        "external",
        "free",
        "#d9c4c4",
        "#1b1b1b",
        "x",
        "Enough free bytes for the next request in the queue, but scattered: no single gap is "
        "large enough. External fragmentation.",
    ),
    ClassLook(
        "short",
        "free",
        "#b0b4b8",
        "#1b1b1b",
        "",
        "Free, but too little for the next request in the queue, which has to wait.",
    ),
    ClassLook(
        "idle",
        "free",
        "#ececec",
        "#1b1b1b",
        "",
        "Free, and nobody is waiting for it.",
    ),
)

LOOK = {look.name: look for look in LOOKS}

# What a dark page shows instead: free memory recedes, what is held stands out.
DARK = {
    "#1b1b1b": "#d5dde5",  # the ink on free memory
    "#404040": "#8b949e",
    "#d9c4c4": "#4a3b40",
    "#b0b4b8": "#4d545c",
    "#ececec": "#23282f",
    "#7cc4ec": "#27506b",
    "#0072b2": "#2b8fd0",
    "#332288": "#8f86e0",
    "#882255": "#d4609a",
    "#117733": "#4fae6f",
}

HATCH_INK = "#8a3b3b"

# Paul Tol's "muted" scheme, for telling runs apart where the classes' hues would mislead; the dash
# tells them apart without any colour.
RUN_COLOURS = ("#882255", "#44aa99", "#332288", "#999933", "#cc6677", "#117733", "#aa4499")
RUN_DASHES = ("solid", "10px,3px", "3px,2px", "10px,3px,2px,3px")


def hatch(look: ClassLook) -> dict[str, Any] | None:
    """Plotly's `pattern` for a ledger class; None for a plain area."""
    if not look.pattern:
        return None
    return {
        "shape": look.pattern,
        "bgcolor": look.colour,
        "fgcolor": HATCH_INK,
        "size": 7,
        "solidity": 0.12,
    }


def run_line(index: int) -> dict[str, str]:
    """Colour and dash (plotly's `line`) of the run at `index` in its result."""
    return {
        "color": RUN_COLOURS[index % len(RUN_COLOURS)],
        "dash": RUN_DASHES[index % len(RUN_DASHES)],
    }
