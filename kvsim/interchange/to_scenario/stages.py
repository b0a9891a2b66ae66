"""Pipeline stages of a described server, if a scenario can run them."""

from typing import Any

from kvsim.interchange.to_scenario.served import ServedModel
from kvsim.interchange.vllm_tiers import tiers_of
from kvsim.readers.description import ServerSettings
from kvsim.vllm.grouping import is_uniform
from kvsim.vllm.versions import NEWEST, vllm_version

_DRAFTER_LAYERS = {"ngram": 0, "eagle": 1, "eagle3": 1, "mtp": 1}


def staged(
    settings: ServerSettings,
    served: ServedModel,
    meta: dict[str, Any],
    assumed: list[str],
    drafts: dict[str, Any] | None = None,
) -> dict[str, int]:
    """Keys of [model] for pipeline stages; {} if the server is simulated as one replica without
    stages.

    Versions before the newest get async_scheduling = false, also in `meta`, since kvsim simulates
    stages with asynchronous scheduling only as in the newest version. drafts is the table
    [speculative_config].
    """
    stages = settings.pipeline_parallel_size or 1
    if stages == 1:
        return {}
    stated = f"pipeline_parallel_size = {stages}"
    reason = _left_out(settings, served, meta, drafts)
    if reason is not None:
        assumed.append(f"{stated}: kvsim simulates one replica without stages ({reason})")
        return {}
    if "async_scheduling" not in meta and not is_newest(meta):
        meta["async_scheduling"] = False
        assumed.append(f"async_scheduling = false: {stated} is simulated without it")
    return {"pipeline_parallel_size": stages}


def _left_out(
    settings: ServerSettings,
    served: ServedModel,
    meta: dict[str, Any],
    drafts: dict[str, Any] | None,
) -> str | None:
    """The reason why a scenario cannot run this server's stages; None if it can."""
    engine = settings.engine or "vllm"
    if engine not in ("vllm", "sglang"):
        return "stages are simulated as vLLM and SGLang schedule them"
    if served.options is None or served.model is None:
        return "its layers are not known"
    if engine == "sglang":
        groups = served.options.layout(served.model).groups
        alike = len(groups) == 1 and groups[0].kind in ("full", "mla")
        return _left_out_of_sglang(settings, alike=alike)
    if settings.host_cache_gib is not None or settings.kv_transfer_config is not None:
        tiers, _ = tiers_of(settings.host_cache_gib, settings.kv_transfer_config)
        if [tier["kind"] for tier in tiers] != ["vllm-offloading"] or not is_newest(meta):
            return "it has a KV tier that is simulated on one stage"
        drafter_layers = 0 if drafts is None else _DRAFTER_LAYERS.get(drafts["method"])
        if drafter_layers is None:
            return "it has a KV tier, and drafts tokens with a model of its own"
        layers = len(served.model.layers) + drafter_layers  # the drafter's are on the last stage
        if layers % (settings.pipeline_parallel_size or 1):
            return "it has a KV tier, and its stages hold unlike bytes"
    if drafts is not None:
        if meta.get("async_scheduling") is False or not is_newest(meta):
            return "drafts are simulated over stages as the newest version schedules asynchronously"
        layout = served.options.layout(served.model)
        if layout.has_own_blocks or (drafts["method"] == "dflash" and not is_uniform(layout)):
            return "it drafts tokens with several block tables"
    if meta.get("async_scheduling") and not is_newest(meta):
        return "it schedules asynchronously, which is simulated as the newest version does it"
    return None


def _left_out_of_sglang(settings: ServerSettings, *, alike: bool) -> str | None:
    """The reason why a scenario cannot run the stages of this SGLang server; None if it can. alike:
    all layers have full attention.
    """
    if not alike:
        return "SGLang's second pool is simulated on one stage"
    if settings.enable_hierarchical_cache:
        return "its hierarchical cache is simulated on one stage"
    if settings.kv_cache_tokens is None and settings.max_total_tokens is None:
        return "no source gives the tokens of its pool, which is not sized over stages"
    return None


def is_newest(meta: dict[str, Any]) -> bool:
    """Whether the server runs the newest vLLM version that kvsim knows; assumed if no source gives
    a version.
    """
    return vllm_version(meta.get("vllm_version", NEWEST.name)) is NEWEST
