"""The kind of module that a name in a checkpoint, or a pattern of names, refers to."""

import re

# Projections of a mixer, or the whole of it, by the names checkpoints give them.
_MIXER = re.compile(r"self_attn|linear_attn|attention|mamba|mixer")
_WHOLE_MIXER = re.compile(rf"(?:{_MIXER.pattern})\W*$")
_OUTER = re.compile(r"qkv|[qo]_proj|out_proj")
_ANY_MIXER = re.compile(r"self_attn|linear_attn|attention|mamba|mixer|[qkvo]_proj")
_ROUTED = re.compile(r"(?<!shared_)experts?\b|experts?\\?\.")
_SHARED = re.compile(r"shared_experts?|shared_mlp")


def is_mixer(name: str) -> bool:
    """Whether a module name is that of a mixer (attention or recurrence) or of its projections."""
    mixer = _MIXER.search(name)
    return mixer is not None and bool(_WHOLE_MIXER.search(name) or _OUTER.search(name, mixer.end()))


def kind_of(name: str) -> str:
    """The kind of a module by name: "expert", "mixer", or "linear" for feed-forward parts and
    everything else.
    """
    if _SHARED.search(name):
        return "linear"
    if _ROUTED.search(name):
        return "expert"
    return "mixer" if _ANY_MIXER.search(name) else "linear"
