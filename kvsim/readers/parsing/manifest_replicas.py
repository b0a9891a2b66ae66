"""Read from a manifest the number of replicas and production-stack's router.

`replicas:` is Kubernetes' and compose's key, `replicaCount:` that of Helm values. The text is
searched by patterns, without parsing YAML.
"""

import re

from kvsim.readers.description import ServerSettings

_REPLICAS = re.compile(
    r"^[ \t]*(?:-[ \t]+)?(?:replicas|replicaCount):[ \t]*[\"']?(\d+)\b", re.MULTILINE
)
_DOCUMENTS = re.compile(r"^---.*$", re.MULTILINE)
_ROUTER = re.compile(r"^[ \t]*routingLogic:[ \t]*[\"']?(\w+)", re.MULTILINE)
_ROUTER_SPEC = re.compile(
    r"^([ \t]*)routerSpec:[^\n]*\n(?:\1[ \t]+\S[^\n]*(?:\n|\Z)|[ \t]*\n)*", re.MULTILINE
)
_SERVES = re.compile(r"vllm|sglang|trtllm|llama-server|modelURL", re.IGNORECASE)
_ROUTERS = {
    "roundrobin": "round-robin",
    "session": "consistent-hash",
    "prefixaware": "prefix-aware",
    "loadaware": "load-aware",
}


def with_replicas(
    settings: ServerSettings, text: str, own: int | None = None
) -> tuple[ServerSettings, list[str]]:
    """The settings, with the replicas and the router of the manifest that they come from.

    own is the number of replicas of this server, if the manifest starts several servers.
    """
    notes = []
    servers = [part for part in _DOCUMENTS.split(text) if _SERVES.search(part)]
    counts = {
        int(found) for part in servers for found in _REPLICAS.findall(_ROUTER_SPEC.sub("", part))
    }
    found: dict[str, int | str] = {}
    if own:
        found["replicas"] = own
    elif len(counts) == 1 and (count := counts.pop()):
        found["replicas"] = count
    elif counts:
        listed = ", ".join(map(str, sorted(counts)))
        notes.append(f"replicas: {listed}: the server's number is not known, and one is taken")
    router = _ROUTER.search(text)
    if router is not None and router[1] in _ROUTERS:
        found["router"] = _ROUTERS[router[1]]
    elif router is not None:
        notes.append(f"routingLogic: {router[1]} is not simulated: kvsim uses round-robin")
    return settings.model_copy(update=found), notes
