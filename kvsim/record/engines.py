"""Recognise the engine that a server runs, and read what the server reports about itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.readers.detect import recognised
from kvsim.readers.parsing.prometheus import metrics
from kvsim.readers.reader import Source, sniffed
from kvsim.readers.sglang.answer import KEPT as SGLANG_KEPT
from kvsim.readers.vllm.metric_names import settings_from
from kvsim.record.address import LiveServer

# Of /props: nothing of chat templates, and no paths of keys.
_LLAMA_KEPT = ("model_path", "total_slots", "build_info")


class LiveEngine(NamedTuple):
    """The names of an engine's metrics, without `prefix`.

    running, waiting and usage are gauges, the current name first, then older ones. prompts and
    outputs are counters of tokens. finished is the counter of finished requests; "": the engine has
    none. ranks are labels of processes (such as `tp_rank`) that all report the same values.
    """

    name: str
    prefix: str
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    usage: tuple[str, ...]
    prompts: str
    outputs: str
    finished: str
    ranks: tuple[str, ...] = ()


# By the reader of their metrics.
ENGINES: dict[str, LiveEngine] = {
    "vllm-metrics": LiveEngine(
        "vllm",
        "vllm:",
        ("num_requests_running",),
        ("num_requests_waiting",),
        ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        "prompt_tokens",
        "generation_tokens",
        "request_success",
    ),
    "sglang-metrics": LiveEngine(
        "sglang",
        "sglang:",
        ("num_running_reqs",),
        ("num_queue_reqs",),
        ("token_usage",),
        "prompt_tokens",
        "generation_tokens",
        "num_requests",
        ("tp_rank", "pp_rank", "moe_ep_rank"),
    ),
    "llama-metrics": LiveEngine(
        "llama.cpp",
        "llamacpp:",
        ("requests_processing",),
        ("requests_deferred",),
        ("kv_cache_usage_ratio",),
        "prompt_tokens",
        "tokens_predicted",
        "",
    ),
}


class Recognised(NamedTuple):
    """The recognised engine, and what the server reports about itself.

    model is the name that clients send. longest is the maximum length of a sequence in tokens;
    None: not reported. settings are for meta.json, under vLLM's names. answers maps file names to
    the server's own answers (/server_info, /props). notes say what the server does not report.
    """

    engine: LiveEngine
    model: str
    longest: int | None
    settings: dict[str, Any]
    answers: dict[str, str]
    notes: tuple[str, ...]


def engine_of(text: str, where: str) -> LiveEngine:
    """The engine that serves these metrics; InputError if it is none that kvsim can record."""
    found = recognised(sniffed(Path("metrics"), text.encode()), Source)
    if found not in ENGINES:
        begin = text.strip().splitlines()[:1]
        raise InputError(
            "metrics of no engine that is recorded",
            where=where,
            value=begin[0][:60] if begin else "an empty answer",
            limit="vLLM's, SGLang's or llama-server's",
            remedy="--metrics-url names the address of the engine's own metrics",
        )
    return ENGINES[found]


async def recognise(server: LiveServer, asked: str | None) -> Recognised:
    """Ask the server for its engine and model. asked is the name of one of several models; None:
    the first.

    InputError if there is no server, it has no metrics or no such model, or it asks for a key.
    """
    text = await server.metrics()
    engine = engine_of(text, server.metrics_url)
    notes: list[str] = []
    model = await _model(server, asked, notes)
    settings: dict[str, Any] = {"model": model.get("root") or model["id"]}
    longest = model.get("max_model_len")
    answers: dict[str, str] = {}
    if engine.name == "vllm":
        settings |= _of_metrics(text)
        version = (await server.get("/version")).object().get("version")
        if isinstance(version, str):
            settings["vllm_version"] = version
        else:
            notes.append("the server does not say its version (/version)")
    elif engine.name == "sglang":
        found = await _first_object(server, "/server_info", "/get_server_info")
        kept = {name: found[name] for name in SGLANG_KEPT if name in found}
        if kept:
            answers["server_info.json"] = _as_json(kept)
        else:
            notes.append("the server does not say its arguments (/server_info)")
    else:
        found = await _first_object(server, "/props")
        kept = {name: found[name] for name in _LLAMA_KEPT if name in found}
        slot = found.get("default_generation_settings")
        if isinstance(slot, Mapping) and isinstance(slot.get("n_ctx"), int):
            kept["default_generation_settings"] = {"n_ctx": slot["n_ctx"]}
            longest = slot["n_ctx"]
        if kept:
            answers["props.json"] = _as_json(kept)
    if isinstance(longest, int) and engine.name == "vllm":
        settings["max_model_len"] = longest
    known = longest if isinstance(longest, int) and longest > 0 else None
    return Recognised(engine, str(model["id"]), known, settings, answers, tuple(notes))


async def _model(server: LiveServer, asked: str | None, notes: list[str]) -> dict[str, Any]:
    """The model's entry in the answer of /v1/models."""
    answer = await server.get("/v1/models")
    rows = answer.object().get("data")
    models = [row for row in rows if isinstance(row, dict) and row.get("id")] if rows else []
    if not models:
        if asked is not None:
            return {"id": asked}
        raise InputError(
            f"the server lists no model (HTTP {answer.status})",
            where=f"{server.base}/v1/models",
            remedy="--model names it",
        )
    names = [str(row["id"]) for row in models]
    if asked is not None:
        if asked not in names:
            raise InputError("no such model on this server", where="--model", value=asked,
                             limit=", ".join(names[:10]))  # fmt: skip
        return dict(models[names.index(asked)])
    if len(models) > 1:
        notes.append(f"the server has {len(models)} models: {names[0]} is asked (--model)")
    return dict(models[0])


async def _first_object(server: LiveServer, *paths: str) -> dict[str, Any]:
    for path in paths:
        found = (await server.get(path)).object()
        if found:
            return found
    return {}


def _of_metrics(text: str) -> dict[str, Any]:
    """Settings found in the labels of vLLM's metrics, under the keys of meta.json."""
    found = settings_from(metrics(text, "/metrics"), "/metrics").reported()
    names = ("block_size", "num_gpu_blocks", "enable_prefix_caching", "gpu_memory_utilization")
    return {name: found[name] for name in names if name in found}


def _as_json(table: Mapping[str, Any]) -> str:
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"
