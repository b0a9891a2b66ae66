"""`kvsim export`: a simulated run as torch's memory snapshot."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A TOML file, or the name of a recipe.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE.pickle", help="Opens in torch's memory_viz; kvsim snapshot reads it."
        ),
    ],
    allocator: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Which allocator; else the first.")
    ] = None,
    at_s: Annotated[
        float | None,
        typer.Option("--at", min=0, metavar="SECONDS", help="When; else when the most was held."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=VALUE", help="Change one key; may be repeated."),
    ] = None,
) -> None:
    """Write a simulated run as the snapshot torch.cuda.memory would have taken of it."""
    from kvsim.interchange.torch_snapshot.export import write_torch_snapshot
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    simulation = Simulation(Scenario.load(scenario, set_ or []))
    label = allocator or simulation.labels[0]
    at_s = write_torch_snapshot(simulation, label, out, at_s)
    typer.echo(f"{out}: {label} at {at_s:.3f} s")
