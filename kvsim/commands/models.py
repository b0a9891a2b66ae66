"""`kvsim models`: list the built-in models, KV bytes per token, and how well each is simulated."""

import json
from typing import Annotated, Any

import typer

from kvsim.commands.arguments import AsJson

ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
TRT_LLM = "TensorRT-LLM, approximate: no schedules of its scheduler are recorded (all models)."


def models(
    like: Annotated[
        str | None, typer.Argument(metavar="[PART]", help="List only names that contain this text.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in models: parameters, layers, longest sequence, KV bytes per token, coverage.

    Coverage of vLLM (paged) and SGLang (radix) is exact, approximate or sized. Exact: recorded
    schedules of such layers are equal row for row. Sized: kvsim memory sizes the model, and kvsim
    run does not simulate it. Reasons are below the table.
    """
    from kvsim.capacity.coverage import covered
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
                "coverage": {name: each._asdict() for name, each in covered(model).items()},
            }
        )
    if as_json:
        typer.echo(json.dumps({"models": answer}, indent=2))
        return
    print_table(
        (
            "model",
            ">parameters",
            ">layers",
            ">longest",
            "dtype",
            ">KV bytes a token",
            *ENGINES.values(),
        ),
        (
            [
                row["name"],
                f"{row['parameters'] / 1e9:,.2f} B",
                str(row["layers"]),
                f"{row['max_model_len']:,}",
                row["dtype"],
                f"{row['kv_bytes_per_token']:,}",
                *(row["coverage"][engine]["level"] for engine in ENGINES),
            ]
            for row in answer
        ),
    )
    for sentence in (*_reasons(answer), TRT_LLM):
        typer.echo(sentence)


def _reasons(answer: list[dict[str, Any]]) -> list[str]:
    """A sentence for each reason why a model is not simulated exactly, with the models it applies
    to.
    """
    sharing: dict[tuple[str, str, str], list[str]] = {}
    for row in answer:
        for engine, each in row["coverage"].items():
            if each["reason"]:
                key = (ENGINES[engine], each["level"], each["reason"])
                sharing.setdefault(key, []).append(row["name"])
    return [
        f"{engine}, {level}: {reason} ({', '.join(names)})."
        for (engine, level, reason), names in sharing.items()
    ]
