"""`kvsim observe SCENARIO --out RUN`: serve a scenario with a real model in real time, and record
it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName
from kvsim.commands.progress import bar
from kvsim.commands.torch_device import Attention, check_device

if TYPE_CHECKING:
    from kvsim.backend.serve.run import Observed


def observe(
    scenario: ScenarioName,
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="Output folder, which `kvsim validate run` reads.")
    ],
    device: Annotated[str, typer.Option(help="Device to run on: cpu or cuda.")] = "cpu",
    allocator: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Allocator to use, if the scenario has several."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="M",
            help="Model in place of the scenario's: a built-in name, small-llama, or a "
            "config.json.",
            show_default="the scenario's",
        ),
    ] = None,
    attention: Attention = None,
    clock: Annotated[
        str,
        typer.Option(
            help="wall: wall-clock time. cpu: CPU time of the engine's thread without idle "
            "waiting, for a shared machine."
        ),
    ] = "wall",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Serve only the first N requests.")
    ] = None,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Serve a scenario with a real transformer in torch, under kvsim's scheduler and allocator."""
    check_device(device)
    from rich.console import Console

    from kvsim.backend.serve.run import observe as observe_run
    from kvsim.backend.transformer.attentions import attention_kind
    from kvsim.observed.writing import write_observation
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import Scenario

    check_writable(out)
    with bar("observing", "TimeElapsed") as advance:
        observed = observe_run(
            Scenario.load(scenario, set_ or []),
            device,
            allocator=allocator,
            clock=clock,
            limit=limit,
            model=model,
            attention=attention_kind(attention, device),
            progress=advance,
        )
    write_observation(out, observed.observation, observed.meta)
    summary = _summary(observed)
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    console = Console(highlight=False)
    console.print("{model} in {dtype} on {gpu}, {allocator}, by the {clock}".format(**summary))
    console.print("{requests} requests, {steps} steps, {makespan_s:.3f} s".format(**summary))
    if summary["refused"]:
        console.print(f"{summary['refused']} requests were refused (see meta.json)")
    console.print(f"written to {out}")


def _summary(observed: "Observed") -> dict[str, Any]:
    observation, meta = observed
    return {
        **meta.model_dump(include={"kvsim", "model", "gpu", "clock"}),
        "dtype": meta.identity.dtype if meta.identity else None,
        "allocator": meta.label,
        "requests": len(observation.recorder.finished),
        "refused": len(observation.recorder.rejected),
        "steps": len(observation.steps),
        "preemptions": sum(step.preempted for step in observation.steps),
        "makespan_s": observation.steps[-1].end_s,
        "cpu_s": sum(step.cpu_s for step in observation.steps),
    }
