"""Drop flags that a server accepts but does not use, since a scenario with them would
be refused.
"""

from collections.abc import Collection, Iterator

from kvsim.interchange.to_scenario.served import ServedModel
from kvsim.model import ModelOptions
from kvsim.readers.description import ServerSettings


def without_unused(
    settings: ServerSettings, served: ServedModel, notes: list[str]
) -> tuple[ServerSettings, ServedModel]:
    """The settings and the model, without settings that have no effect for this model.

    A note lists each of them.
    """
    if served.model is None or served.options is None:
        return settings, served
    kinds = {group.kind for group in served.options.layout(served.model).groups}
    given, of_model = settings.reported(), served.options.unused(served.model)
    unused = {key: why for key, why in _unused(settings, kinds) if key in given} | of_model
    notes += [f"{key} is left out: {why}" for key, why in unused.items()]
    table = {key: value for key, value in served.table.items() if key not in unused}
    left = served._replace(table=table, options=ModelOptions.parse(table, "[model]"))
    return settings.model_copy(update=dict.fromkeys(unused)), left


def _unused(settings: ServerSettings, kinds: Collection[str]) -> Iterator[tuple[str, str]]:
    """(key, reason) for each setting that the server does not use."""
    if settings.engine == "sglang" and "recurrent" not in kinds:
        yield "mamba_full_memory_ratio", "the model has no recurrent layers"
    if settings.engine != "llama.cpp":
        return
    if "sliding" not in kinds:
        for key in ("swa_full", "n_ubatch"):
            yield key, "the model has no sliding windows"
    if "sliding" in kinds and not settings.swa_full:
        for key in ("context_shift", "cache_reuse"):
            yield key, "no position shifts where windows forget tokens"
    else:
        yield "ctx_checkpoints", "only windows that forget tokens need checkpoints"
    if settings.cache_ram == 0:
        yield "cache_idle_slots", "cache_ram = 0 has no room to save a slot in"
