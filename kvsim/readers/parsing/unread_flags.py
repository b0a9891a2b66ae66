"""Notes on flags of a server that are not read."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches

_NEAR = 0.9  # of equal characters: of vLLM 0.33 no flag that is not read is so like one that is
_NO_TYPOS = ("attn_cp_size", "dcp_size")  # of SGLang 0.5.23 these are, beside attn_dp_size, dp_size
# Flags of vLLM, SGLang, TensorRT-LLM and llama-server that change what memory holds or how long a
# step takes.
_MATTERS = re.compile(
    r"(attn_cp|dcp_|speculative|spec_(?!decode_metrics)|(model_)?draft|lookahead|cpu_offload|offload_|swap_space|"
    r"lora_|enable_lora|max_lora|fully_sharded|dbo_|enable_dbo|ubatch|prefill_context_parallel|"
    r"max_num_(partial|active|scheduled)|max_long_partial|long_prefill|prefill_schedule|mamba_|"
    r"max_mamba|kv_sharing|kv_cache_dtype|attention_(backend|config)|quantization|torchao|"
    r"optimization_level|performance_mode|device_memory|disable_sliding_window|sliding|swa_|"
    r"cuda_graph|disable_cuda_graph|enable_torch_compile|enable_two_batch|"
    r"num_continuous_decode|disaggregation|enable_(sleep_mode|eplb|hc_sp)|moe_(a2a|dense)|ep_num|"
    r"n_gpu_layers|n_cpu_moe|cpu_moe|override_tensor|cache_type|flash_attn|rope|yarn|extra_llm)"
)


def unread_notes(unread: Iterable[str], known: Collection[str]) -> list[str]:
    """Notes on flags that are not read.

    For a flag that resembles a known one, the note suggests that name. Flags that change memory or
    time are listed first, the rest in another note. known has the names that are read.
    """
    plain, matter, notes = [], [], []
    for flag in sorted(unread):
        name = _name(flag)
        near = get_close_matches(name, known, n=1, cutoff=_NEAR)
        if near and name not in _NO_TYPOS:
            notes.append(f"{flag} is not read: did you mean --{near[0].replace('_', '-')}?")
        elif _MATTERS.match(name):
            matter.append(flag)
        else:
            plain.append(flag)
    return [*notes, *_in_two_classes("flags", matter, plain)]


def printed_notes(names: Sequence[str]) -> list[str]:
    """Notes on arguments that an engine prints at its start and that are not read. names have no
    dashes.
    """
    matter = [name for name in names if _MATTERS.match(name)]
    plain = [name for name in names if not _MATTERS.match(name)]
    return list(_in_two_classes("arguments", matter, plain))


def _in_two_classes(kind: str, matter: Sequence[str], plain: Sequence[str]) -> Iterator[str]:
    """A note on the names that change memory or time, and one on the rest; none of an empty one."""
    if matter:
        yield f"{kind} that change memory or time, and are not read: {', '.join(matter)}"
    if plain:
        yield f"{kind} that are not read: {', '.join(plain)}"


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
