"""`kvsim capacity`: what load, pool or setting just keeps the objectives."""

from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import (
    MOST_SEEDS,
    AsJson,
    Changes,
    Jobs,
    ScenarioName,
    Verbose,
    run_command,
)

FIND_GPUS = "gpus"


def capacity(
    scenario: ScenarioName,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBER=LIMIT", help="An objective, such as ttft_s.p99=2. Repeatable."
        ),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="What to find: rate, num_users, pool, max_model_len, max_num_seqs, "
            "max_num_batched_tokens, prefill_replicas or gpus (default: rate; num_users where "
            "users wait for answers). prefill_replicas are of all replicas of [disaggregation]. "
            "gpus is the fewest that serve a rate, by replicas of each kind.",
        ),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            metavar="PER_S",
            help="A request rate per second. With --find rate: replicas that it takes. Repeatable.",
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(metavar="1,2,4", help="Values to try (default: powers of two)."),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_SEEDS, metavar="SEEDS", help="Seeds. Each one gets its own bisection."
        ),
    ] = 3,
    tolerance: Annotated[
        float,
        typer.Option(
            min=1e-6, max=1.0, help="Stop when the bracket is this narrow, as a share of its value."
        ),
    ] = 0.02,
    fresh: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_SEEDS,
            metavar="SEEDS",
            help="Seeds beyond those of the search that must all keep the load to copy (default: "
            "22, so that 9 of 10 others do with 90 % confidence; 0 with --repeat 1).",
        ),
    ] = None,
    jobs: Jobs = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write capacity.json, .md and .html.")
    ] = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate, or the smallest pool, that keeps the objectives.

    Each seed gets its own bisection; the interval covers the seeds. The load to copy is one that
    fresh seeds keep too. Two more objectives always hold: no request is refused, and the queue
    does not grow until the end of the run.
    """
    from kvsim.commands.answers import answer, task_runner
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import checked_tables
    from kvsim.whatif.capacity.capacity import Capacity
    from kvsim.whatif.capacity.capacity_findings import edge_findings, tuning_findings
    from kvsim.whatif.capacity.fewest_findings import fewest_findings
    from kvsim.whatif.capacity.fresh import NUM_FRESH
    from kvsim.whatif.capacity.objectives import complete, parse_objective
    from kvsim.whatif.capacity.questions import TUNED, question_named

    if not slo:
        raise InputError("required", where="--slo", remedy="give an objective: --slo ttft_s.p99=2")
    if any(not each > 0 for each in rate or ()):
        raise InputError("a rate is above 0", where="--rate", value=rate)
    if values is not None and find not in TUNED:
        raise InputError(f"belongs to {', '.join(TUNED)}", where="--values", value=values)
    if rate and find in TUNED:
        raise InputError(f"--find {find} looks for the highest rate itself", where="--rate")
    question = None if find in (None, *TUNED, FIND_GPUS) else question_named(str(find))
    objectives = complete([parse_objective(text) for text in slo])
    run = run_command(scenario, set_)
    if out is not None:
        check_writable(out)
    with checked_tables(scenario, set_ or []) as (table, folder), task_runner(jobs) as runner:
        num_fresh = (NUM_FRESH if repeat > 1 else 0) if fresh is None else fresh
        asked = Capacity(
            *(table, folder, objectives, runner),
            repeat=repeat,
            tolerance=tolerance,
            fresh=num_fresh,
        )
        if find == FIND_GPUS:
            findings = fewest_findings(asked, rate or (), run)
        elif find in TUNED:
            findings = tuning_findings(asked, str(find), _whole_numbers(values), run)
        else:
            goodput = out is not None or as_json
            looked = question or asked.load
            findings = edge_findings(asked, looked, rate or (), goodput=goodput, run=run)
    answer(findings, as_json=as_json, out=out, name="capacity", verbose=verbose, folder=folder)


def _whole_numbers(text: str | None) -> tuple[int, ...]:
    from kvsim.plumbing.errors import InputError

    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError("not whole numbers above 0", where="--values", value=text)
    return tuple(dict.fromkeys(map(int, parts)))
