"""Choice of the engine with the pool that `kvsim memory` sizes, by the given options."""

from collections.abc import Mapping
from typing import Any

import typer

from kvsim.commands.memory.flags import PANELS, SGLANG, TRT_LLM, VLLM
from kvsim.plumbing.errors import InputError

# The panel of each engine but vLLM, by the option that chooses it, and the words for its pool.
WAYS = {
    "mem_fraction_static": (SGLANG, "SGLang's pools"),
    "free_gpu_memory_fraction": (TRT_LLM, "TensorRT-LLM's pool"),
}
VLLM_ONLY = (
    *(name for panel in (VLLM, "Drafts and adapters", "Answer") for name in PANELS[panel]),
    *("enable_expert_parallel", "language_model_only"),
)


def chosen_way(context: typer.Context, flags: Mapping[str, Any]) -> str | None:
    """The option that chooses an engine; None for vLLM. InputError for an option of another engine,
    which would change nothing.
    """
    way = next((name for name in WAYS if flags[name] is not None), None)
    mine, words = WAYS[way] if way is not None else (None, "vLLM's pool")
    for name in VLLM_ONLY if way is not None else ():
        if is_given(context, name):
            remedy = f"leave it out, or leave {flag(str(way))} out for vLLM's pool"
            raise InputError(f"no option of {words}", where=flag(name), remedy=remedy)
    for other, (panel, others) in WAYS.items():
        for name in PANELS[panel] if panel != mine else ():
            if is_given(context, name):
                instead = "" if way is None else f" in place of {flag(way)}"
                remedy = f"give {flag(other)} auto for {others}{instead}, or leave it out"
                raise InputError(f"no option of {words}", where=flag(name), remedy=remedy)
    return way


def of_vllm(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags without those of the other engines."""
    own = {name for panel, _ in WAYS.values() for name in PANELS[panel]}
    return {name: value for name, value in flags.items() if name not in own}


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the user wrote this option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def flag(name: str) -> str:
    """The option as the user writes it."""
    return "--" + name.replace("_", "-")
