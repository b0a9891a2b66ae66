"""`kvsim cache`: what a prefix cache of any size would find of a stream."""

from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName, count_of


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
    from kvsim.commands.answers import answer, status_line
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation
    from kvsim.whatif.cache_curve.cache_findings import cache_findings
    from kvsim.whatif.cache_curve.question import CacheQuestion, cache_answer

    sizes = tuple(at or ())
    question = CacheQuestion(block_tokens, sizes, outputs, partial, belady, policies, retention)
    question.check()
    simulation = Simulation(Scenario.load(scenario, set_ or []))
    with status_line() as show:
        found = cache_answer(simulation, question, show)
    answer(cache_findings(found, simulation.resolved()), as_json=as_json)
