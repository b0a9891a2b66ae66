"""Location of the headers of a checkpoint: in the folder of its config.json, in the hub's cache, or
on the hub.

Only the headers are downloaded, by range requests (huggingface_hub's `get_safetensors_metadata`).
They are cached in short form next to the cached config.json, and later read from there without any
network.
"""

import json
from contextlib import suppress
from pathlib import Path

from kvsim.model.checkpoint.headers import Tensor, folder_tensors, tensors_of
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object

SHORT_FORM = "kvsim-safetensors-headers.json"


def beside(config: Path) -> dict[str, Tensor]:
    """The tensors of the checkpoint in the folder of a config.json; empty without a checkpoint."""
    folder = config if config.is_dir() else config.parent
    short = folder / SHORT_FORM
    if short.is_file():
        return tensors_of(read_object(short), str(short))
    try:
        return folder_tensors(folder)
    except InputError:
        if "snapshots" in folder.parts:  # the hub's cache may hold some of the files alone
            return {}
        raise


def of_repository(repository: str, config: Path, *, offline: bool) -> tuple[dict[str, Tensor], str]:
    """(tensors, reason) for a repository with this cached config.json. reason: why there are no
    tensors, "" if there are.
    """
    found = beside(config)
    if found or offline:
        return found, "" if found else "kvsim is offline"
    if (config.parent / SHORT_FORM).is_file():
        return {}, "the repository has no safetensors files"
    try:
        found = _asked(repository)
    except Exception as error:
        return {}, f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
    short = {name: {"dtype": each.dtype, "shape": each.shape} for name, each in found.items()}
    with suppress(OSError):  # a cache that cannot be written to is asked again
        (config.parent / SHORT_FORM).write_text(json.dumps(short), encoding="utf-8")
    return found, ""


def _asked(repository: str) -> dict[str, Tensor]:
    from huggingface_hub import constants, get_safetensors_metadata
    from huggingface_hub.errors import NotASafetensorsRepoError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if constants.HF_HUB_OFFLINE:
        raise OSError("HF_HUB_OFFLINE is set")
    disable_progress_bars()
    try:
        files = get_safetensors_metadata(repository).files_metadata
    except NotASafetensorsRepoError:
        return {}
    header = {
        name: {"dtype": tensor.dtype, "shape": list(tensor.shape)}
        for file in files.values()
        for name, tensor in file.tensors.items()
    }
    return tensors_of(header, repository)
