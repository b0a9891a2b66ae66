"""TensorRT-LLM's options in YAML, for `trtllm-serve --extra_llm_api_options FILE`."""

from collections.abc import Callable, Iterator
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.yaml_lines import yaml_values
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source
from kvsim.readers.trtllm.args import KNOWN, POLICIES, PROGRAM
from kvsim.readers.vllm.args import UNSAID, fraction, kv_dtype, truth

_KV = "kv_cache_config"
_OWN = (  # of no other tool's YAML, two of them together
    *("max_batch_size", "max_num_tokens", "max_seq_len", "cuda_graph_config", "moe_config"),
    *("enable_attention_dp", "scheduler_config", "enable_iter_perf_stats", "print_iter_log"),
)
_OTHERS = ("trace_version:", "apiVersion:", "image:")  # of YAML that is something else
# Options by their place in the file: the setting each is, and how it is read.
_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: found for name, found in KNOWN.items() if name != "tokens_per_block"},
    "tensor_parallel_size": KNOWN["tp_size"],
    "pipeline_parallel_size": KNOWN["pp_size"],
    f"{_KV}.free_gpu_memory_fraction": ("free_gpu_memory_fraction", fraction),
    f"{_KV}.max_tokens": ("kv_cache_tokens", whole),
    f"{_KV}.tokens_per_block": ("block_size", whole),
    f"{_KV}.enable_block_reuse": ("enable_prefix_caching", truth),
    f"{_KV}.dtype": ("kv_cache_dtype", kv_dtype),
    "scheduler_config.capacity_scheduler_policy": (
        "capacity_policy",
        lambda name: POLICIES.get(str(name).upper()),
    ),
}


class TrtLlmConfig(Source):
    """Options of the LLM API, some of them below `kv_cache_config:` or `scheduler_config:`."""

    rank = ASKED_FOR
    what = "TensorRT-LLM's options in YAML"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file by keys that no other tool has."""
        if source.is_folder or source.document is not None or "\0" in source.text:
            return False
        if not source.holds(_KV, *_OWN) or PROGRAM.stands_in(source.text):
            return False
        if any(line.startswith(_OTHERS) for line in source.text.splitlines()):
            return False
        outer = {key for indent, key, _ in yaml_values(source.text) if not indent}
        return _KV in outer or len(outer.intersection(_OWN)) > 1

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read every option that a scenario has; a note lists the others."""
        found: dict[str, Any] = {"engine": "tensorrt-llm"}
        unread, notes = set(), []
        for place, value in _placed(source.string()):
            if place not in _OPTIONS:
                unread.add(place)
                continue
            if isinstance(value, str | int) and value in UNSAID:
                continue
            setting, read = _OPTIONS[place]
            try:
                known = read(value)
            except (ValueError, OverflowError) as fault:
                raise InputError(str(fault), where=f"{source.name}: {place}", value=value) from None
            if known is None:
                unread.add(place)
            else:
                found[setting] = known
        if unread:
            notes.append(f"options that are not read: {', '.join(sorted(unread))}")
        if "kv_cache_tokens" in found:
            notes.append(
                f"{_KV}.max_tokens is taken as the pool; the engine has fewer tokens where they do "
                "not fit"
            )
        return Description(ServerSettings.parse(found, source.name), notes=tuple(notes))


def _placed(text: str) -> Iterator[tuple[str, Any]]:
    """(keys joined by dots, value) for each option with a value."""
    above: list[tuple[int, str]] = []
    for indent, key, value in yaml_values(text):
        while above and above[-1][0] >= indent:
            above.pop()
        place = ".".join([*(name for _, name in above), key])
        if value is None:
            above.append((indent, key))
        elif isinstance(value, dict):
            yield from ((f"{place}.{name}", each) for name, each in value.items())
        else:
            yield place, value
