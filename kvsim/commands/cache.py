"""`kvsim cache`: what a prefix cache of any size would find of a stream."""

import json
from typing import Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName


def cache(
    scenario: ScenarioName,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, help="A block's tokens (default: the paged allocator's).")
    ] = None,
    at: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="TOKENS", help="A size of the cache; may be repeated."),
    ] = None,
    outputs: Annotated[
        bool, typer.Option(help="What is generated is kept too, and takes room.")
    ] = True,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Blocks that are not full count, as traces of hashes do."),
    ] = False,
    belady: Annotated[
        bool, typer.Option("--belady", help="Also the bound no policy passes (slower).")
    ] = False,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """The hit ratio against the size of the cache, LRU, for all sizes in one pass over the prompts.

    Prompts are taken in order of arrival, one after the other: what a cache is worth before any
    scheduling. Running sequences hold blocks too, so a pool finds less than a cache of its size.
    Where a prompt waits for an answer, as in conversations, the order is that of one run.
    """
    from rich.console import Console

    from kvsim.commands.whatif_tables import printed
    from kvsim.plumbing.errors import InputError
    from kvsim.report.numbers import count
    from kvsim.scenario import Scenario
    from kvsim.simulation import BLOCK_SIZE, Simulation
    from kvsim.whatif.cache_curve.belady import belady_hits
    from kvsim.whatif.cache_curve.lru import lru_curve
    from kvsim.whatif.cache_curve.order import in_order
    from kvsim.whatif.page import Cells

    if belady and partial:
        raise InputError("is for full blocks", where="--belady", remedy="leave out --partial")
    simulation = Simulation(Scenario.load(scenario, set_ or []))
    requests = in_order(simulation)
    sizes_given = (getattr(each, "block_size", None) for each in simulation.scenario.allocator)
    block = block_tokens or next(filter(None, sizes_given), BLOCK_SIZE)
    pool = simulation.pool.capacity_bytes // simulation.layout.bytes_per_token
    curve = lru_curve(requests, block, outputs=outputs, partial=partial)
    largest = (len(curve.hit_tokens) - 1) * block
    sizes = sorted(set(at or ())) or _sizes(block, pool, largest)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        row: dict[str, Any] = {"tokens": size, "lru": curve.ratio(size)}
        if belady:
            hits = belady_hits(requests, size // block, block, outputs=outputs)
            row["belady"] = hits / curve.query_tokens if curve.query_tokens else 0.0
        rows.append(row)
    answer = {
        "block_tokens": block,
        "query_tokens": curve.query_tokens,
        "pool_tokens": pool,
        "unlimited": curve.unlimited,
        "unlimited_tokens": largest,
        "sizes": rows,
    }
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    heads = ("cache, tokens", "LRU", *(["Belady"] if belady else []))
    cells = tuple(
        (
            f"{row['tokens']:,}" + (" (the pool)" if row["tokens"] == pool else ""),
            _percent(row["lru"]),
            *([_percent(row["belady"])] if belady else []),
        )
        for row in rows
    )
    unlimited = _percent(curve.unlimited)
    last = (f"unlimited ({largest:,} do)", unlimited, *([unlimited] if belady else []))
    console = Console()
    console.print(printed(Cells("Prompt tokens found", "", heads, (*cells, last))))
    console.print(f"Of {count(curve.query_tokens)} prompt tokens, in blocks of {block}.")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _sizes(block: int, pool: int, largest: int) -> list[int]:
    """Powers of four of blocks up to what finds everything, and the scenario's pool."""
    sizes = {pool}
    size = block * 64
    while size < largest:
        sizes.add(size)
        size *= 4
    return sorted(sizes)
