"""`kvsim cache`: what a prefix cache of any size would find of a stream."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName, count_of

if TYPE_CHECKING:
    from kvsim.simulation import Simulation
    from kvsim.whatif.cache_curve.matching import Matching
    from kvsim.whatif.cache_curve.policies import PolicyRun
    from kvsim.whatif.cache_curve.retention import RetentionRun
    from kvsim.whatif.findings import FindingsTable


def cache(
    scenario: ScenarioName,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, help="A block's tokens (default: the paged allocator's).")
    ] = None,
    at: Annotated[
        list[int] | None,
        typer.Option(
            parser=count_of,
            metavar="TOKENS",
            help="A size of the cache, as 65536 or 64K; may be repeated.",
        ),
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
    retention: Annotated[
        bool,
        typer.Option(
            "--retention", help="Also runs that keep all of windows and states, and the least."
        ),
    ] = False,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """The hit ratio against the size of the cache, LRU, for all sizes in one pass over the prompts.

    Prompts are taken in order of arrival, one after the other: what a cache is worth before any
    scheduling. Running sequences hold blocks too, so a pool finds less than a cache of its size.
    Where a prompt waits for an answer, as in conversations, the order is that of one run.
    What a pool finds under each eviction policy --policies tells, by full runs, and --retention
    what keeping less of windows and states buys. Blocks are as the model makes them: one that must
    hold a recurrent state is long, and why nothing is found in it is said.
    """
    from kvsim.commands.tables import out as stdout
    from kvsim.plumbing.errors import InputError
    from kvsim.report.numbers import count
    from kvsim.scenario import Scenario
    from kvsim.simulation import BLOCK_SIZE, Simulation
    from kvsim.whatif.cache_curve.belady import belady_hits
    from kvsim.whatif.cache_curve.lru import lru_curve
    from kvsim.whatif.cache_curve.matching import unit_to_try, why
    from kvsim.whatif.cache_curve.order import in_order
    from kvsim.whatif.cache_curve.prompt_ends import found_at_ends
    from kvsim.whatif.cache_curve.retention import bought
    from kvsim.whatif.findings import FindingsTable, terminal_table

    if belady and partial:
        raise InputError("is for full blocks", where="--belady", remedy="leave out --partial")
    if policies and block_tokens:
        raise InputError(
            "runs have the allocator's own blocks",
            where="--block-tokens",
            remedy="leave out --policies, or --set allocator.0.block_size=N",
        )
    simulation = Simulation(Scenario.load(scenario, set_ or []))
    retained = _retained(simulation) if retention else []
    compared = _compared(simulation) if policies else []
    requests = in_order(simulation)
    sizes_given = (getattr(each, "block_size", None) for each in simulation.scenario.allocator)
    planned = _matching(simulation)
    block = block_tokens or next(filter(None, sizes_given), BLOCK_SIZE)
    if planned is not None and block_tokens is None:
        block = planned.block_tokens
    pool = simulation.pool.capacity_bytes // simulation.layout.bytes_per_token
    curve = lru_curve(requests, block, outputs=outputs, partial=partial)
    said = None
    if planned is not None and block_tokens is None and block > BLOCK_SIZE:
        fine = lru_curve(requests, BLOCK_SIZE, outputs=outputs, partial=partial).unlimited
        if planned.is_to_blame(curve.unlimited, fine):
            unit, inside = unit_to_try(planned), None
            if unit is not None:
                inside = found_at_ends(requests, block, unit, outputs=outputs)
            said = why(planned, curve.unlimited, fine, BLOCK_SIZE, inside)
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
    if said is not None:
        answer["why"] = said
    if retained:
        answer["retention"] = [run.as_dict() for run in retained]
        answer["retention_buys"] = bought(retained, curve.ratio(pool))
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
    enough = f"unlimited ({largest:,} do)" if largest else "unlimited"
    last = (enough, unlimited, *([unlimited] if belady else []))
    console = stdout()
    console.print(terminal_table(FindingsTable("Prompt tokens found", "", heads, (*cells, last))))
    console.print(f"Of {count(curve.query_tokens)} prompt tokens, in blocks of {block:,}.")
    if said is not None:
        console.print(said, highlight=False)
    if retained:
        console.print()
        console.print(terminal_table(_retention_cells(retained)))
        console.print(answer["retention_buys"], highlight=False)
    if compared:
        told = _policy_cells(compared)
        console.print()
        console.print(terminal_table(told))
        console.print(told.note, highlight=False)


def _matching(simulation: "Simulation") -> "Matching | None":
    """Of the first paged allocator that keeps prefixes; None without one."""
    from kvsim.memory.paged.options import Paged
    from kvsim.whatif.cache_curve.matching import matching

    for options in simulation.scenario.allocator:
        if isinstance(options, Paged) and options.enable_prefix_caching:
            return matching(simulation, options)
    return None


def _retained(simulation: "Simulation") -> "list[RetentionRun]":
    """The runs of --retention; which one is under way is said on stderr."""
    from rich.console import Console

    from kvsim.whatif.cache_curve.policies import caching_paged
    from kvsim.whatif.cache_curve.retention import compare_retention

    paged = caching_paged(simulation.scenario.allocator)
    with Console(stderr=True).status("") as status:
        return compare_retention(simulation, paged, lambda name: status.update(f"retention {name}"))


def _retention_cells(runs: "list[RetentionRun]") -> "FindingsTable":
    from kvsim.report import numbers
    from kvsim.whatif.findings import FindingsTable

    rows = tuple(
        (
            str(run.interval),
            _percent(run.ratio),
            _percent(run.cached),
            _percent(run.left),
            f"{run.summary.preemptions:,}",
            numbers.number(run.summary.ttft_s.mean),
            numbers.number(run.summary.requests_per_s),
        )
        for run in runs
    )
    cached = "pool cached", "with windows, states"
    heads = ("retention", "found", *cached, "preempted", "mean TTFT, s", "requests/s")
    return FindingsTable("What is kept of windows and states", "", heads, rows)


def _compared(simulation: "Simulation") -> "list[PolicyRun]":
    """A run under each policy; which one is under way is said on stderr."""
    from rich.console import Console

    from kvsim.whatif.cache_curve.policies import compare_policies

    with Console(stderr=True).status("") as status:
        return list(compare_policies(simulation, lambda name: status.update(f"under {name}")))


def _policy_answer(run: "PolicyRun") -> dict[str, Any]:
    return {
        "policy": run.policy,
        "found": run.ratio,
        "belady": run.most_ratio,
        "preemptions": run.summary.preemptions,
        "recomputed_tokens": run.summary.recomputed_tokens,
        "requests_per_s": run.summary.requests_per_s,
        "ttft_s": run.summary.ttft_s.as_json(),
        "e2e_s": run.summary.e2e_s.as_json(),
    }


def _policy_cells(compared: "list[PolicyRun]") -> "FindingsTable":
    from kvsim.report import numbers
    from kvsim.whatif.findings import FindingsTable

    rows = tuple(
        (
            run.policy,
            _percent(run.ratio),
            numbers.NOTHING if run.most_ratio is None else _percent(run.most_ratio),
            f"{run.summary.preemptions:,}",
            numbers.number(run.summary.ttft_s.mean),
            numbers.number(run.summary.requests_per_s),
        )
        for run in sorted(compared, key=lambda run: run.ratio, reverse=True)
    )
    heads = ("eviction policy", "found", "Belady", "preempted", "mean TTFT, s", "requests/s")
    note = (
        "Full runs of the scenario at its own pool, the best first. Belady: what could have been "
        "found at most in the order in which that run asked, had its content all of the pool."
    )
    return FindingsTable("Under the exact schedule", note, heads, rows)


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
