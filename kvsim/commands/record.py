"""`kvsim record URL --out RUN`: put load on a running server, and write files to import."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes
from kvsim.commands.progress import bar
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.record.recording import RecordedServer
    from kvsim.request import Stream

INTERRUPTED = 130  # as shells have it of ^C
_FLAGS = ("requests", "rate", "users", "prompt_tokens", "output_tokens")
_PROMPTS, _OUTPUTS, _REQUESTS = "512", "128", 100


def record(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="A running vLLM, SGLang or llama-server: http://HOST:PORT."
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="Output folder, which `kvsim import` reads.")
    ],
    watch: Annotated[
        bool, typer.Option("--watch", help="Send nothing: watch what comes, until ^C.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="N", help="Requests a second, at random (Poisson)."),
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Clients that each wait for their answer."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Requests to send.", show_default=str(_REQUESTS)),
    ] = None,
    prompt_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Length of prompts: 512, or 100-900.", show_default=_PROMPTS
        ),
    ] = None,
    output_tokens: Annotated[
        str | None,
        typer.Option(metavar="N", help="Length of answers: 128, or 20-200.", show_default=_OUTPUTS),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="SCENARIO", help="Send the [workload] of a scenario or a recipe instead."
        ),
    ] = None,
    set_: Changes = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="S",
            help="Stop after so many seconds.",
            show_default="at the load's end",
        ),
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.05, metavar="S", help="Seconds between two polls of /metrics.")
    ] = 1.0,
    device: Annotated[
        str | None, typer.Option(help="GPU of the server, such as h100; no server names it.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to ask, if the server has several.")
    ] = None,
    metrics_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Address of the engine's metrics.", show_default="URL/metrics"
        ),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the server's API key."),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Send prompts as words, not as token ids.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the load.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Record a running server: send it a load, or watch it, and poll its /metrics.

    Answers are asked for at their full length (ignore_eos), and their tokens are timed as they
    come. Prompts are random token ids, others in each recording, so that the server's prefix cache
    has none of them. ^C keeps what has come so far. No answer and no API key is written.
    """
    from kvsim.plumbing.extras import need
    from kvsim.plumbing.writing import check_writable

    need("httpx2", where="kvsim record")
    from kvsim.record.recording import RecordOptions
    from kvsim.record.recording import record as record_server

    given = {
        "requests": requests,
        "rate": rate,
        "users": users,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
    }
    load, terms = _load(given, workload, set_ or [], seed, watch=watch)
    if watch and text:
        raise InputError("nothing is sent", where="--text", remedy="leave --watch out")
    _check_fresh(out)
    check_writable(out)
    options = RecordOptions(
        url,
        out,
        load,
        terms,
        device=_device_name(device),
        model=model,
        headers=_headers(api_key_env),
        metrics_url=metrics_url,
        every_s=every,
        seconds=seconds,
        text=text,
    )
    words = "watching, seconds" if watch else "requests answered"
    with bar(words, "TimeElapsed") as moved:
        found = asyncio.run(record_server(options, moved))
    _print(found, out, device, as_json=as_json)
    if found.stopped and not watch:
        raise typer.Exit(INTERRUPTED)


def _load(
    given: dict[str, Any], workload: str | None, changes: list[str], seed: int, *, watch: bool
) -> tuple["Callable[[int | None], Stream] | None", dict[str, Any]]:
    """A function that makes the request stream of the options, and its parameters as a benchmark's
    result names them; None for the function if the server is only watched.
    """
    from kvsim.scenario import load_tables
    from kvsim.workload import WORKLOADS

    flags = [f"--{name.replace('_', '-')}" for name in _FLAGS if given[name] is not None]
    if watch and (flags or workload or changes):
        first = (flags or ["--workload" if workload else "--set"])[0]
        raise InputError("nothing is sent", where=first, remedy="leave --watch out, or this")
    if watch:
        return None, {}
    if workload is None:
        if changes:
            raise InputError("a change of no workload", where="--set", remedy="give --workload")
        table, base = workload_of_flags(**given), Path()
    else:
        if flags:
            raise InputError("the workload says it", where=flags[0],
                             remedy="--set changes its keys")  # fmt: skip
        tables, base = load_tables(workload, changes)
        seed, asked = tables.get("seed", seed), tables.get("workload")
        if not isinstance(asked, dict):
            raise InputError("a scenario without [workload]", where=workload)
        table = asked
    options = WORKLOADS.parse(table, "workload")

    def make(longest: int | None) -> "Stream":
        return options.stream(seed, base=base, max_model_len=longest)

    return make, _terms(table)


def workload_of_flags(
    *,
    rate: float | None = None,
    users: int | None = None,
    requests: int | None = None,
    prompt_tokens: str | None = None,
    output_tokens: str | None = None,
) -> dict[str, Any]:
    """The [workload] table that the flags describe; InputError unless exactly one of `rate` and
    `users` is given.
    """
    if (rate is None) == (users is None):
        both = rate is not None
        raise InputError(
            "two kinds of load at once" if both else "no load is named",
            where="--rate and --users" if both else "kvsim record",
            remedy="give one of them"
            if both
            else "give --rate N, --users N, --workload SCENARIO, or --watch to send nothing",
        )
    if rate is not None:
        if not rate > 0:
            raise InputError("no request ever comes", where="--rate", value=rate,
                             limit="above 0")  # fmt: skip
        arrivals: dict[str, Any] = {"kind": "poisson", "rate_per_s": rate}
    else:
        think = {"kind": "fixed", "seconds": 0.0}
        arrivals = {"kind": "closed-loop", "num_users": users, "think": think}
    return {
        "kind": "synthetic",
        "num_requests": requests or _REQUESTS,
        "arrivals": arrivals,
        "prompt": _lengths(prompt_tokens or _PROMPTS, "--prompt-tokens"),
        "output": _lengths(output_tokens or _OUTPUTS, "--output-tokens"),
    }


def _lengths(text: str, where: str) -> dict[str, Any]:
    """Parse a length: `512` is fixed, `100-900` is uniform over 100 to 900."""
    low, dash, high = text.partition("-")
    least, most = (int(each) if each.isdecimal() else 0 for each in (low, high if dash else low))
    if not 1 <= least <= most:
        raise InputError("not a length in tokens", where=where, value=text,
                         limit="N, or LOW-HIGH")  # fmt: skip
    if least == most:
        return {"kind": "fixed", "tokens": least}
    return {"kind": "uniform", "min_tokens": least, "max_tokens": most}


def _terms(workload: dict[str, Any]) -> dict[str, Any]:
    """The load's parameters under the names of `vllm bench serve`, such as `request_rate`."""
    arrivals = workload.get("arrivals")
    table = arrivals if isinstance(arrivals, dict) else {}
    return {
        "request_rate": table.get("rate_per_s", "inf"),
        "burstiness": 1.0,
        "max_concurrency": table.get("num_users", workload.get("max_concurrency")),
    }


def _headers(api_key_env: str | None) -> dict[str, str]:
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env)
    if not key:
        raise InputError("an environment variable that is not set", where="--api-key-env",
                         value=api_key_env)  # fmt: skip
    return {"Authorization": f"Bearer {key}"}


def _device_name(device: str | None) -> str | None:
    """The device's name in the catalogue."""
    from kvsim.device import named_device

    return None if device is None else named_device(device, "--device").name


def _check_fresh(out: Path) -> None:
    """Raise InputError if the folder is not empty: files of two recordings must not be mixed."""
    if out.is_dir() and any(out.iterdir()):
        raise InputError("the folder is not empty", where="--out", value=str(out),
                         remedy="name another one, or remove it")  # fmt: skip


def _print(found: "RecordedServer", out: Path, device: str | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**found._asdict(), "run": str(out)}, indent=1, ensure_ascii=False))
        return
    what = f"{found.engine} with {found.model}, {found.seconds:.1f} s"
    if found.sent:
        what += f": {found.answered:,} of {found.sent:,} requests answered"
    typer.echo(f"{what}, {found.scrapes:,} scrapes of /metrics")
    for note in found.notes:
        typer.echo(f"note: {note}")
    if found.stopped:
        typer.echo("interrupted: what had come is kept")
    typer.echo(f"written to {out}")
    gpu = device or "GPU"
    typer.echo(f"next: kvsim import {out} [server.log] --device {gpu} --out mine.toml")
