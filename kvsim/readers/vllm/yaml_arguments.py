"""Convert vLLM's arguments in YAML to the words of a command line.

The YAML is a file for `vllm serve --config`, or Helm values of production-stack.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvsim.readers.parsing.manifests import documents, mappings
from kvsim.readers.vllm.args import KNOWN, SWITCHES

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS = {"enable-lo-ra": "enable-lora"}
_LMCACHE_GIB = 5.0  # its default of host memory (LMCACHE_MAX_LOCAL_CPU_SIZE)
# Keys of a model of production-stack's values that say nothing of memory or time.
_OF_KUBERNETES = frozenset(
    (
        *("name", "repository", "tag", "replicaCount", "requestCPU", "requestMemory", "requestGPU"),
        *("limitCPU", "limitMemory", "requestGPUType", "pvcStorage", "pvcMatchLabels", "hf_token"),
        *("pvcAccessMode", "storageClass", "imagePullPolicy", "imagePullSecret", "env", "labels"),
        *("podAnnotations", "nodeSelectorTerms", "nodeName", "tolerations", "affinity"),
        *("serviceAccountName", "priorityClassName", "securityContext", "containerSecurityContext"),
        *("extraVolumes", "extraVolumeMounts", "initContainer", "shmSize", "enableShm", "hfToken"),
        *("annotations", "runtimeClassName", "startupProbe", "livenessProbe", "readinessProbe"),
        *("vllmApiKey", "serviceAnnotations", "modelURL", "vllmConfig", "lmcacheConfig"),
    )
)


class HelmModel(NamedTuple):
    """One entry of `modelSpec:` in production-stack's values.

    words are those of the model's command line. tag is the container image's. unread has keys that
    are not read. replicas is the entry's number.
    """

    words: tuple[str, ...]
    tag: str | None
    unread: tuple[str, ...]
    replicas: int | None = None


def config_words(text: str, where: str) -> list[str]:
    """The command line for a file of `vllm serve --config`; each key is a flag, as in vLLM."""
    table = next((each for each in documents(text, where) if isinstance(each, dict)), {})
    return list(_words(table))


def helm_models(text: str, where: str) -> list[HelmModel]:
    """The models that production-stack's Helm values serve."""
    return [_helm_model(each) for each in mappings(documents(text, where)) if "modelURL" in each]


def helm_keys(text: str, where: str) -> list[str]:
    """The keys of Helm values, as `table.key` inside a table."""
    found = []
    for table in documents(text, where):
        for key, value in table.items() if isinstance(table, dict) else ():
            found += [f"{key}.{each}" for each in value] if isinstance(value, dict) else [str(key)]
    return found


def known_keys(text: str, where: str) -> int:
    """The number of a YAML file's top-level keys that are vLLM's arguments."""
    tables = [each for each in documents(text, where) if isinstance(each, dict)]
    names = {str(key).replace("-", "_") for key in (tables[0] if tables else ())}
    switched_off = {name.removeprefix("no_") for name in names} & SWITCHES
    return len(names & KNOWN.keys() | switched_off)


def _words(table: Mapping[Any, Any]) -> Iterator[str]:
    for key, value in table.items():
        name = _CAMEL.sub("-", str(key)).replace("_", "-").lower()
        name = _WORDS.get(name, name)
        plain = name.replace("-", "_")
        if name in ("model-tag", "model-url"):
            name = "model"
        if value is None:
            continue
        if isinstance(value, bool):
            if value:
                yield f"--{name}"
            elif plain in SWITCHES:
                yield f"--no-{name}"
            elif plain.removeprefix("no_") in SWITCHES and plain != plain.removeprefix("no_"):
                yield f"--{name.removeprefix('no-')}"
            else:
                yield f"--{name}=false"
        elif isinstance(value, dict):
            yield from (f"--{name}", json.dumps(value, default=str))
        elif isinstance(value, list):
            yield from (f"--{name}", *(str(each) for each in value))
        else:
            yield from (f"--{name}", str(value))


def _helm_model(model: Mapping[str, Any]) -> HelmModel:
    config = dict(model.get("vllmConfig") or {})
    more = [str(word) for word in config.pop("extraArgs", None) or ()]
    words = ["--model", str(model["modelURL"])]
    unread = sorted(model.keys() - _OF_KUBERNETES)
    if config.pop("v1", None) is not None:
        unread.append("vllmConfig.v1")
    words += _words(config)
    cache = model.get("lmcacheConfig")
    if isinstance(cache, dict) and cache.get("enabled"):
        cache_words, left = _lmcache(cache)
        words += cache_words
        unread += left
    tag = model.get("tag")
    count = model.get("replicaCount")
    replicas = count if type(count) is int else None
    tag = None if tag is None else str(tag)
    return HelmModel((*words, *more), tag, tuple(unread), replicas)


def _lmcache(cache: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """--kv-transfer-config for LMCache as production-stack starts it, and the keys that are not
    read.
    """
    role = str(cache.get("kvRole") or "kv_both")
    nixl = cache.get("enableNixl") or cache.get("enablePD")
    config: dict[str, Any] = {"kv_connector": "LMCacheConnectorV1", "kv_role": role}
    if not nixl:
        size = cache.get("cpuOffloadingBufferSize") or _LMCACHE_GIB
        config["kv_connector_extra_config"] = {"max_local_cpu_size": float(size)}
    read = {"enabled", "cpuOffloadingBufferSize", "kvRole"}
    left = [f"lmcacheConfig.{key}" for key in cache if key not in read]
    return ["--kv-transfer-config", json.dumps(config)], left
