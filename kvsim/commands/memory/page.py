"""`kvsim memory --out DIR`: the answer as an HTML page with a bar of the GPU's memory."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kvsim.commands.memory.memory_tables import MemoryPart, device_parts, size_words
from kvsim.plumbing.units import GIB
from kvsim.report.class_bars import Stretches, class_bars, put_key_below
from kvsim.report.classes import LOOKS
from kvsim.whatif.findings import CommandText, Findings, FindingsFigure, FindingsTable, Section

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from kvsim.capacity.memory_answer import MemoryAnswer


def write_answer(answer: "MemoryAnswer", data: Mapping[str, Any], folder: Path) -> None:
    """Write the page of a vLLM server. data: the JSON answer."""
    fits = [
        (
            *(f"{fit.tokens:,}", size_words(fit.bytes)),
            *(f"{count:,}" for count in (fit.max_buffer, fit.doubling, fit.paged)),
        )
        for fit in answer.fits
    ]
    heads = ("tokens each", "needs", "max-buffer", "doubling", "paged")
    table = FindingsTable("Sequences that fit", "", heads, fits)
    parts = device_parts(answer.sized.pool)
    told = {**data, "log": data["engine"]["log"]}
    write_page(folder, f"vLLM, {answer.model.name}", answer.device.name, parts, told, [table])


def write_page(
    folder: Path,
    server: str,
    device: str,
    parts: Sequence[MemoryPart],
    data: Mapping[str, Any],
    more: Sequence[FindingsTable] = (),
) -> None:
    """Write memory.json, .md and .html into the folder, and print the path of the page on stderr.

    server: name of the engine and its model. data: the JSON answer, with keys `log` (lines of the
    engine) and `notes`. more: tables that follow the table of memory.
    """
    from kvsim.commands.answers import write

    rows = [(words, f"{size:,}", size_words(size)) for words, size, _ in parts]
    sections: list[Section] = [
        FindingsFigure(
            f"Memory of one {device}",
            "What is taken before, and what is left for the KV cache.",
            partial(_bar, device, parts),
            lead=True,
        ),
        FindingsTable("In bytes", "", ("", "bytes", "size"), rows),
        CommandText("Lines of the engine's log", "", "\n".join(data["log"]), lead=True),
        *more,
    ]
    *_, (words, size, _) = parts
    sentences = [f"{words}: {size_words(size)} of one {device}.", *data["notes"]]
    title = f"The KV cache of {server}"
    page = write(Findings(title, [], sentences, sections, {}, data), folder, "memory")
    typer.echo(str(page), err=True)


def _bar(device: str, parts: Sequence[MemoryPart]) -> "go.Figure":
    """A stacked bar of one GPU's memory, with the KV cache as the last segment."""
    # The last has the colour of used memory, the others those of the ledger's other classes.
    used, *others = LOOKS
    looks = [*(others[at % len(others)] for at in range(len(parts) - 1)), used]
    bars = []
    for part, look in zip(parts, looks, strict=True):
        text = size_words(part.num_bytes)
        named = look._replace(name=part.words)
        length, hover = [part.num_bytes / GIB], f"{part.words}: {text}"
        bars.append(Stretches(named, length, [text], hover, [[]]))
    figure = class_bars([device], bars, row_px=70, edges_px=150, gap=0.35)
    put_key_below(figure, 130)
    figure.update_xaxes(title_text="GiB", rangemode="tozero")
    return figure
