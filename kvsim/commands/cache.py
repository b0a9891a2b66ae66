"""`kvsim cache`: what a prefix cache of any size would find of a stream."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName

if TYPE_CHECKING:
    from kvsim.simulation import Simulation
    from kvsim.whatif.cache_curve.policies import PolicyRun
    from kvsim.whatif.page import Cells


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
    policies: Annotated[
        bool,
        typer.Option("--policies", help="Also a run of the scenario under each eviction policy."),
    ] = False,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """The hit ratio against the size of the cache, LRU, for all sizes in one pass over the prompts.

    Prompts are taken in order of arrival, one after the other: what a cache is worth before any
    scheduling. Running sequences hold blocks too, so a pool finds less than a cache of its size.
    Where a prompt waits for an answer, as in conversations, the order is that of one run.
    What a pool finds under each eviction policy --policies tells, by full runs.
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
    if policies and block_tokens:
        raise InputError(
            "runs have the allocator's own blocks",
            where="--block-tokens",
            remedy="leave out --policies, or --set allocator.0.block_size=N",
        )
    simulation = Simulation(Scenario.load(scenario, set_ or []))
    compared = _compared(simulation) if policies else []
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
    if policies:
        answer["policies"] = [_policy_answer(run) for run in compared]
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
    if compared:
        told = _policy_cells(compared)
        console.print()
        console.print(printed(told))
        console.print(told.note, highlight=False)


def _compared(simulation: "Simulation") -> "list[PolicyRun]":
    """A run under each policy; which one is under way is said on stderr."""
    from rich.console import Console

    from kvsim.whatif.cache_curve.policies import compare_policies

    with Console(stderr=True).status("") as status:
        return list(compare_policies(simulation, lambda name: status.update(f"under {name}")))


def _policy_answer(run: "PolicyRun") -> dict[str, Any]:
    numbers = ("preemptions", "recomputed_tokens", "requests_per_s", "ttft_s", "e2e_s")
    return {
        "policy": run.policy,
        "found": run.ratio,
        "belady": run.most_ratio,
        **{name: run.summary[name] for name in numbers},
    }


def _policy_cells(compared: "list[PolicyRun]") -> "Cells":
    from kvsim.report import numbers
    from kvsim.whatif.page import Cells

    rows = tuple(
        (
            run.policy,
            _percent(run.ratio),
            numbers.NOTHING if run.most_ratio is None else _percent(run.most_ratio),
            f"{run.summary['preemptions']:,}",
            numbers.figures(run.summary["ttft_s"]["mean"], 3),
            numbers.figures(run.summary["requests_per_s"], 3),
        )
        for run in sorted(compared, key=lambda run: run.ratio, reverse=True)
    )
    heads = ("eviction policy", "found", "Belady", "preempted", "mean TTFT, s", "requests/s")
    note = (
        "Full runs of the scenario at its own pool, the best first. Belady: what could have been "
        "found at most in the order in which that run asked, had its content all of the pool."
    )
    return Cells("Under the exact schedule", note, heads, rows)


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
