"""Choice of the engine (vLLM, SGLang or TensorRT-LLM) that `kvsim memory` sizes, by its options."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import typer

from kvsim.commands.memory.flags import PANELS, PANELS_OF, SGLANG, SHARED, TRT_LLM
from kvsim.plumbing.errors import InputError


class Way(NamedTuple):
    """An engine other than vLLM: its name, the help panel of its options, and its pool as text."""

    engine: str
    panel: str
    words: str


# By the option that sizes the engine's pool.
WAYS = {
    "mem_fraction_static": Way("sglang", SGLANG, "SGLang's pools"),
    "free_gpu_memory_fraction": Way("trt-llm", TRT_LLM, "TensorRT-LLM's pool"),
}
VLLM_ONLY = (
    *(name for panel in PANELS_OF["vllm"] if panel not in SHARED for name in PANELS[panel]),
    "language_model_only",
)


def with_engine(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags, where `--engine sglang` or `trt-llm` sets that engine's memory fraction to `auto`,
    unless a fraction is given.

    InputError if the memory fraction of another engine is given.
    """
    engine = flags["engine"]
    filled = dict(flags)
    for name, way in WAYS.items() if engine is not None else ():
        if way.engine == engine:
            filled[name] = flags[name] or "auto"
        elif flags[name] is not None:
            raise InputError(
                f"no option of --engine {engine}",
                where=flag(name),
                remedy=f"leave it out, or give --engine {way.engine}",
            )
    return filled


def chosen_way(context: typer.Context, flags: Mapping[str, Any]) -> str | None:
    """Name of the given memory-fraction option that chooses another engine (such as
    `mem_fraction_static`); None for vLLM. InputError for an option of an engine that is not chosen,
    since it would change nothing.
    """
    way = next((name for name in WAYS if flags[name] is not None), None)
    words = WAYS[way].words if way is not None else "vLLM's pool"
    for name in VLLM_ONLY if way is not None else ():
        if is_given(context, name):
            asked = f"--engine {flags['engine']}" if flags["engine"] else flag(str(way))
            remedy = f"leave it out, or leave {asked} out for vLLM's pool"
            raise InputError(f"no option of {words}", where=flag(name), remedy=remedy)
    for option, other in WAYS.items():
        for name in PANELS[other.panel] if option != way else ():
            if is_given(context, name):
                instead = "" if way is None else f" in place of {flag(way)}"
                remedy = f"give --engine {other.engine} for {other.words}{instead}, or leave it out"
                raise InputError(f"no option of {words}", where=flag(name), remedy=remedy)
    return way


def of_vllm(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags without the options of SGLang and TensorRT-LLM."""
    own = {name for way in WAYS.values() for name in PANELS[way.panel]}
    return {name: value for name, value in flags.items() if name not in own}


def is_given(context: typer.Context, name: str) -> bool:
    """Whether this option was given on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def flag(name: str) -> str:
    """The option's name as typed: `block_size` becomes `--block-size`."""
    return "--" + name.replace("_", "-")
