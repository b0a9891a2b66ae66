"""`kvsim memory SCENARIO.toml`: size the KV pool of a scenario, as its engine would log it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kvsim.commands.memory.engines import flag, is_given
from kvsim.plumbing.errors import InputError


def answer_scenario(
    context: typer.Context,
    path: Path,
    flags: Mapping[str, Any],
    *,
    as_json: bool,
    out: Path | None,
) -> None:
    """Size the pool, and print it as text or as JSON. InputError for any option, since the file
    decides it, and for `out`: `kvsim run --out` writes a scenario's page.
    """
    for name in flags:
        if is_given(context, name):
            raise InputError(
                "the scenario says it",
                where=flag(name),
                remedy=f"leave it out, or change {path.name}",
            )
    if out is not None:
        raise InputError(
            "no page of a scenario's pool alone",
            where="--out",
            remedy=f"kvsim run {path} --out DIR draws it",
        )
    figures = scenario_figures(path)
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    typer.echo(f"{figures['model']} on {figures['device']}")
    for words, key in (
        ("KV pool, bytes", "capacity_bytes"),
        ("weights, bytes", "weights_bytes"),
        ("tokens that the engine logs", "tokens"),
        ("blocks", "engine_num_gpu_blocks"),
        ("tokens in a block", "engine_block_size"),
    ):
        typer.echo(f"{words}: {figures[key]:,}")


def scenario_figures(path: Path) -> dict[str, Any]:
    """All figures of the pool on one GPU, as plain data. `tokens` is the size that the engine logs
    (with its rule for hybrid models); if the scheduler logs none, the tokens that the pool holds.
    """
    from kvsim.scenario import Scenario
    from kvsim.scenario.build.sized import SizedScenario

    sized = SizedScenario(Scenario.load(path))
    pool = sized.pool
    logged = sized.scenario.scheduler.engine_version is not None
    return {
        "scenario": str(path),
        "model": sized.model.name,
        "source": sized.model.source,
        "device": sized.device.name,
        "max_model_len": sized.max_model_len,
        "tokens": pool.kv_cache_size_tokens if logged else pool.pool_tokens,
        "bytes_per_token": sized.layout.bytes_per_token,
        **pool._asdict(),
    }
