"""The command function of `kvsim memory`: reads its options and prints the library's answer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Verbose
from kvsim.commands.memory.flags import with_flags
from kvsim.commands.memory.help import EngineCommand

if TYPE_CHECKING:
    from kvsim.capacity.memory_answer import MemoryQuestion
    from kvsim.device import Device
    from kvsim.model import ModelOptions
    from kvsim.plumbing.options import Options

KERNEL_TOKENS = 16  # vLLM 0.33, v1/attention/backends: flash_attn.py, triton_attn.py
# Options with a switch of their own that turns them off.
SWITCHED_OFF = ("enable_prefix_caching", "flashinfer_sampler")


@with_flags
def memory(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Built-in name, Hugging Face id, a checkpoint's folder, config.json or scenario.",
        ),
    ],
    verbose: Verbose = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write memory.json, .md and .html.")
    ] = None,
    as_json_: AsJson = False,
    **flags: Any,
) -> None:
    """Size the KV cache of MODEL on a GPU: bytes per token, pool, sequences that fit.

    Figures are per GPU, for the pipeline stage with the fewest blocks. The last lines are those of
    the engine's start-up log.
    """
    if out is not None:
        from kvsim.plumbing.writing import check_writable

        check_writable(out)
    from kvsim.commands.memory.llamacpp import answer_llamacpp, is_llamacpp

    if is_llamacpp(context, model, flags):
        answer_llamacpp(context, model, flags, as_json=as_json_, out=out)
        return
    if Path(model).suffix == ".toml":
        from kvsim.commands.memory.scenario import answer_scenario

        answer_scenario(context, Path(model), flags, as_json=as_json_, out=out)
        return
    from kvsim.capacity.memory_answer import as_json, memory_answer
    from kvsim.capacity.pool import unlike_stages
    from kvsim.commands.memory.engines import chosen_way, with_engine
    from kvsim.commands.memory.idle_flags import idle_notes
    from kvsim.commands.memory.memory_tables import print_answer
    from kvsim.commands.memory.sglang import SWITCH, answer_sglang, sglang_figures
    from kvsim.commands.memory.trt_llm import answer_trt_llm, trt_llm_figures
    from kvsim.vllm.versions import newer_than_known

    flags = with_engine(flags)
    way = chosen_way(context, flags)

    def figures(given: Mapping[str, Any]) -> Any:
        options, gpu = _options(model, given), _device(given["device"], given["device_memory"])
        if way is not None:
            return (sglang_figures if way == SWITCH else trt_llm_figures)(options, gpu, given)
        return as_json(memory_answer(_question(options, gpu, given)))

    notes = [*_taken_for(model), *idle_notes(context, flags, figures)]
    options, gpu = _options(model, flags), _device(flags["device"], flags["device_memory"])
    if way is not None:
        answer_of = answer_sglang if way == SWITCH else answer_trt_llm
        answer_of(options, gpu, flags, notes, as_json=as_json_, out=out)
        return
    answer = memory_answer(_question(options, gpu, flags))
    sized = answer.sized
    beside = (
        sized.pool.over_device(gpu.name, sized.stages),
        unlike_stages(sized.stages),
        newer_than_known(sized.pool.engine_version),
        _odd_blocks(flags["block_size"]),
    )
    notes = [*(f"{each}." for each in beside if each is not None), *notes]
    table = {**as_json(answer), "notes": notes}
    if out is not None:
        from kvsim.commands.memory.page import write_answer

        write_answer(answer, table, out)
    if as_json_:
        typer.echo(json.dumps(table, indent=2))
    else:
        print_answer(answer, notes, verbose=verbose)


memory.command_class = EngineCommand  # type: ignore[attr-defined]  # kvsim.cli asks for it


def _taken_for(name: str) -> list[str]:
    """A note that the model is sized as an older one with the same config.json. No note if it is in
    the catalogue itself.
    """
    from kvsim.model.catalogue import elder_of

    elder = elder_of(name)
    if elder is None:
        return []
    return [f"{name} is sized as {elder}, which the catalogue takes to have the same config.json."]


def _odd_blocks(tokens: int) -> str | None:
    """The warning that vLLM would refuse this block size; None if it accepts the size."""
    if tokens % KERNEL_TOKENS == 0:
        return None
    return (
        f"vLLM's attention kernels take blocks of {KERNEL_TOKENS} tokens or a multiple: it would "
        f"refuse blocks of {tokens}"
    )


def _options(model: str, flags: Mapping[str, Any]) -> "ModelOptions":
    from kvsim.model import ModelOptions

    path = Path(model)
    is_path = path.suffix == ".json" or (path / "config.json").is_file()
    named = {"hf_config" if is_path else "name": model}
    return ModelOptions.parse(named | _fields(ModelOptions, flags), "model")


def _question(options: "ModelOptions", gpu: "Device", flags: Mapping[str, Any]) -> "MemoryQuestion":
    from kvsim.capacity.memory_answer import MemoryQuestion
    from kvsim.capacity.options import MemoryOptions
    from kvsim.commands.memory.engines import of_vllm

    given = {name: flag for name, flag in flags.items() if flag is not None}
    off = {name: False for name in SWITCHED_OFF if flags[f"no_{name}"]}
    return MemoryQuestion(
        options,
        _on_stages(gpu, flags["stage_device"] or (), options.pipeline_parallel_size),
        MemoryOptions.parse(_fields(MemoryOptions, of_vllm(given)) | off, "memory"),
        flags["block_size"],
        flags["max_num_seqs"],
        flags["max_num_batched_tokens"],
        flags["num_tokens"] or (),
        flags["initial_tokens"],
        flags["prefill_checkpoint_alignment"],
    )


def _on_stages(gpu: "Device", given: Sequence[str], count: int) -> "Sequence[Device]":
    """The GPU of each of `count` pipeline stages: `gpu`, except where `given` says STAGE=GPU.
    InputError for an entry of another form, or for a stage that is given twice.
    """
    from kvsim.device import named_device, stage_devices
    from kvsim.plumbing.errors import InputError

    own = {}
    for each in given:
        number, equals, name = each.partition("=")
        if not (equals and number.isdecimal()) or int(number) in own:
            raise InputError(
                "name each stage once, with its GPU",
                where="--stage-device",
                value=each,
                remedy="for example 2=rtx-4090",
            )
        own[int(number)] = named_device(name, "--stage-device")
    return stage_devices(gpu, own, count, "--stage-device")


def _fields(options: "type[Options]", flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are also fields of this option class."""
    return {name: value for name, value in flags.items() if name in options.model_fields}


def _device(name: str | None, memory_gib: float | None) -> "Device":
    """The GPU that --device and --device-memory ask for. It is from the catalogue, perhaps with
    another memory size, or a GPU of which only the memory size is given.
    """
    from kvsim.device import named_device, sized_device
    from kvsim.plumbing.errors import InputError

    if memory_gib is not None:
        return sized_device(name or "device", memory_gib)
    if name is None:
        raise InputError(
            "no GPU is named", where="--device", remedy="give --device NAME or --device-memory GIB"
        )
    return named_device(name, "--device")
