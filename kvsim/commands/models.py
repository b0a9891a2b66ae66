"""`kvsim models`: the built-in models, and what a token of each costs."""

import json
from typing import Annotated, Any

import typer

from kvsim.commands.arguments import AsJson


def models(
    like: Annotated[
        str | None, typer.Argument(metavar="[PART]", help="List only names that contain this text.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in models: parameters, layers, longest sequence, KV bytes per token."""
    from kvsim.commands.terminal_tables import print_table
    from kvsim.model import model_names, named_model
    from kvsim.plumbing.errors import InputError

    names = [name for name in model_names() if like is None or like.lower() in name]
    if not names:
        raise InputError(
            "no built-in model is called so", value=repr(like), remedy="kvsim models lists them all"
        )
    answer: list[dict[str, Any]] = []
    for name in names:
        model = named_model(name)
        answer.append(
            {
                "name": name,
                "parameters": model.num_params,
                "layers": model.num_layers,
                "max_model_len": model.max_position_embeddings,
                "dtype": model.torch_dtype,
                "kv_bytes_per_token": model.kv_layout().bytes_per_token,
            }
        )
    if as_json:
        typer.echo(json.dumps({"models": answer}, indent=2))
        return
    print_table(
        ("model", ">parameters", ">layers", ">longest", "dtype", ">KV bytes a token"),
        (
            [
                row["name"],
                f"{row['parameters'] / 1e9:,.2f} B",
                str(row["layers"]),
                f"{row['max_model_len']:,}",
                row["dtype"],
                f"{row['kv_bytes_per_token']:,}",
            ]
            for row in answer
        ),
    )
