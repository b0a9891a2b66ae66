"""`kvsim cache`: hit rate of a prefix cache of any size for a scenario's prompts."""

from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson, Changes, Jobs, ScenarioName, count_of


def cache(
    scenario: ScenarioName,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens per block (default: the paged allocator's).")
    ] = None,
    at: Annotated[
        list[int] | None,
        typer.Option(
            parser=count_of,
            metavar="TOKENS",
            help="A cache size in tokens, such as 65536 or 64K. Repeatable.",
        ),
    ] = None,
    outputs: Annotated[bool, typer.Option(help="Cache generated tokens too.")] = True,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Count partly filled blocks too, as traces of block hashes do."
        ),
    ] = False,
    belady: Annotated[
        bool,
        typer.Option(
            "--belady", help="Also compute Belady's bound, which no policy can pass (slower)."
        ),
    ] = False,
    policies: Annotated[
        bool,
        typer.Option("--policies", help="Also run the scenario under each eviction policy."),
    ] = False,
    retention: Annotated[
        bool,
        typer.Option(
            "--retention",
            help="Also run with all windows and states kept, and with the fewest kept.",
        ),
    ] = False,
    tiers: Annotated[
        bool,
        typer.Option(
            "--tiers", help="Split hits of caches larger than the pool: device, and tier behind it."
        ),
    ] = False,
    jobs: Jobs = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write cache.json, .md and .html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the hit ratio of an LRU prefix cache at a range of sizes.

    One pass over the prompts in order of arrival gives the hit ratio at every size. The curve
    is an upper bound for a KV pool of that size, because running sequences hold blocks too. In
    conversations, where a prompt waits for an answer, one simulation gives the order. --policies
    and --retention run the whole scenario instead. Blocks are as large as the model needs: a block
    that holds a recurrent state is long, and short shared prefixes never fill one.
    """
    from kvsim.commands.answers import answer, status_line
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation
    from kvsim.whatif.cache_curve.cache_findings import cache_findings
    from kvsim.whatif.cache_curve.question import CacheQuestion, cache_answer

    sizes = tuple(at or ())
    question = CacheQuestion(
        block_tokens, sizes, outputs, partial, belady, policies, retention, tiers, jobs
    )
    question.check()
    if out is not None:
        check_writable(out)
    simulation = Simulation(Scenario.load(scenario, set_ or []))
    with status_line("one pass over all prompts") as show:
        found = cache_answer(simulation, question, show)
    findings = cache_findings(found, simulation.resolved())
    # Only these answers contain times.
    timed = simulation.scenario.folder if policies or retention else None
    answer(findings, as_json=as_json, out=out, name="cache", folder=timed)
