"""`kvsim memory MODEL.gguf --engine llama.cpp`: size the KV cache of llama-server or of Ollama."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kvsim.commands.memory.engines import flag, is_given
from kvsim.commands.memory.flags import LLAMACPP, PANELS, PANELS_OF
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.llamacpp.gguf_file import GgufModel

OWN = ("engine", *PANELS[LLAMACPP])
ENGINES = tuple(name for name, panels in PANELS_OF.items() if LLAMACPP in panels)
OLLAMA_CONTEXT = 4096  # tokens of a request, where OLLAMA_CONTEXT_LENGTH says nothing


def is_llamacpp(context: typer.Context, model: str, flags: Mapping[str, Any]) -> bool:
    """Whether the flags ask for llama.cpp's KV cache. InputError for options of the other kind of
    engine, which would have no effect.
    """
    given = {name for name in flags if is_given(context, name)}
    gguf = Path(model).suffix == ".gguf"
    if flags["engine"] not in ENGINES and not gguf:
        for name in sorted(given & set(OWN) - {"engine"}):
            raise InputError(
                "no option of this engine", where=flag(name), remedy="add --engine llama.cpp"
            )
        return False
    if flags["engine"] not in (None, *ENGINES):
        raise InputError(
            "sized as llama.cpp or Ollama, from a GGUF file",
            where="--engine",
            value=flags["engine"],
            remedy="give --engine llama.cpp or ollama, or the model's name",
        )
    for name in sorted(given - set(OWN)):
        raise InputError("no option of llama.cpp's cache", where=flag(name), remedy="leave it out")
    return True


def answer_llamacpp(
    context: typer.Context,
    model: str,
    flags: Mapping[str, Any],
    *,
    as_json: bool,
    out: Path | None,
) -> None:
    """Size the KV cache, and print it as the lines of llama-server's log, or as JSON. out: folder
    for the page.
    """
    from kvsim.commands.memory.idle_flags import idle_notes

    found = _figures(model, flags)
    notes = idle_notes(context, flags, lambda each: _figures(model, each))
    if Path(model).suffix != ".gguf":
        notes.append("The cache is sized from the model's config.json. Its GGUF file was not read.")
    if out is not None:
        from kvsim.commands.memory.memory_tables import MemoryPart
        from kvsim.commands.memory.page import write_page

        held = [MemoryPart(name, size, True) for name, size in found["device_bytes"].items()]
        server = f"{found['engine']}, {found['model']}"
        write_page(out, server, "server", held, {**found, "notes": notes})
    if as_json:
        typer.echo(json.dumps({**found, "notes": notes}, indent=2))
        return
    settings, shape = found["settings"], found["context"]
    slots = f"{settings['n_seq_max']} slots" if settings["n_seq_max"] > 1 else "1 slot"
    shared = "that share one buffer" if shape["buffers"] < settings["n_seq_max"] else "each"
    typer.echo(f"{found['model']}: {slots} of {shape['n_ctx_seq']:,} tokens {shared}")
    typer.echo(f"KV cache: {found['kv_bytes']:,} bytes, {found['kv_bytes'] / (1 << 30):.2f} GiB")
    for name, num_bytes in found["device_bytes"].items():
        if num_bytes:
            typer.echo(f"  {name}: {num_bytes:,} bytes")
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo("\n".join(["", *found["log"]]))


def _model(name: str) -> "GgufModel":
    """The model of a GGUF file, of a config.json, or of a model's name."""
    from kvsim.llamacpp.from_config import model_from_config
    from kvsim.llamacpp.gguf_file import read_gguf
    from kvsim.model.options import ModelOptions

    if Path(name).suffix == ".gguf":
        return read_gguf(Path(name))
    key = "hf_config" if Path(name).suffix == ".json" else "name"
    return model_from_config(ModelOptions.parse({key: name}, "model").build())


def _figures(name: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """All figures of the KV cache as plain data, and the lines that llama-server logs about it."""
    from kvsim.engine.schedulers.llama_server.flags import ServerFlags
    from kvsim.llamacpp.placement import device_bytes
    from kvsim.llamacpp.sizes import cache_sizes, context_of, log_lines

    model = _model(name)
    table = {
        "n_ctx": flags["ctx_size"],
        "n_parallel": flags["parallel"],
        "kv_unified": True if flags["kv_unified"] else None,
        "n_batch": flags["batch_size"],
        "n_ubatch": flags["ubatch_size"],
        "type_k": flags["cache_type_k"],
        "type_v": flags["cache_type_v"],
        "swa_full": flags["swa_full"],
    }
    if flags["engine"] == "ollama":
        table |= _ollama(table)
    given = {key: value for key, value in table.items() if value is not None}
    settings = ServerFlags.parse(given, "memory").context_settings()
    settings = settings._replace(flash_attn=flags["flash_attn"] != "off")
    if not settings.n_ctx and not settings.kv_unified:
        raise InputError(
            "slots with a buffer each need a context", where="--ctx-size", remedy="give it"
        )
    context = context_of(settings, model.trained_tokens)
    sizes = cache_sizes(model.shape, settings, context)
    shares = _shares(flags["tensor_split"])
    gpu_layers = flags["n_gpu_layers"]
    gpu_layers = len(model.layers) + 1 if gpu_layers is None else gpu_layers
    held = device_bytes(model.layers, model.window, settings, context, gpu_layers, shares)
    named = {("host" if not at else f"GPU {at - 1}"): held[at] for at in range(len(held))}
    log = log_lines(sizes, settings)
    caches = {"base": sizes.base._asdict()}
    if sizes.windowed is not None:
        caches["windowed"] = sizes.windowed._asdict()
    return {
        "model": model.name,
        "engine": flags["engine"] or "llama.cpp",
        "settings": settings._asdict(),
        "context": context._asdict(),
        "caches": caches,
        "kv_bytes": sizes.num_bytes,
        "device_bytes": named,
        "log": log,
    }


def _ollama(table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with which Ollama starts llama-server: a separate KV buffer for each parallel
    request, all allocated when the model is loaded.

    A value comes from the command line, else from Ollama's environment variables, else from
    Ollama's defaults.
    """
    parallel = table["n_parallel"] or _environment("OLLAMA_NUM_PARALLEL", 1)
    tokens = table["n_ctx"] or _environment("OLLAMA_CONTEXT_LENGTH", OLLAMA_CONTEXT)
    kind = os.environ.get("OLLAMA_KV_CACHE_TYPE") or "f16"
    return {
        "n_ctx": tokens * parallel,
        "n_parallel": parallel,
        "kv_unified": False,
        "type_k": table["type_k"] or kind,
        "type_v": table["type_v"] or kind,
    }


def _environment(name: str, default: int) -> int:
    value = os.environ.get(name)
    if not value:
        return default
    if not value.isdecimal() or not int(value):
        raise InputError("not a count of one or more", where=name, value=value)
    return int(value)


def _shares(text: str | None) -> list[float]:
    """Parse `--tensor-split`, the model's proportions on each GPU: `3,1` becomes [3.0, 1.0]."""
    if text is None:
        return [1.0]
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or min(shares) < 0 or not 0 < sum(shares) < 1e30:
        raise InputError(
            "not shares of GPUs", where="--tensor-split", value=text, remedy="such as 3,1"
        )
    return shares
