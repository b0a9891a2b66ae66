"""`kvsim explore [SCENARIO]`: a local page to play with a scenario, and a tour."""

from typing import Annotated

import typer


def explore(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO]", help="A TOML file, or the name of a recipe."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Only this machine can reach the default.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port. 0 takes any free one.")] = 8050,
    show: Annotated[
        bool, typer.Option("--open", help="Open the page in this machine's browser.")
    ] = False,
) -> None:
    """Serve a local page: change settings, watch the memory, take the tour."""
    from kvsim.plumbing.extras import need

    need("dash", where="kvsim explore")
    from kvsim.explore.processes import start_loading

    start_loading()  # while this process loads the server
    from kvsim.explore.hosts import is_loopback
    from kvsim.explore.server import serve

    def ready(address: str) -> None:
        typer.echo(f"{address}    (Ctrl+C ends it)")
        if not is_loopback(host):
            words = "note: whoever has this address with its token can simulate on this machine"
            typer.echo(f"{words}; it travels unencrypted", err=True)
        if show:
            typer.launch(address)

    serve(scenario, host, port, ready)
