"""llama-server's answers to /props, /slots and /metrics."""

import re
from typing import Any

from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.llamacpp.args import model_name
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.parsing.prometheus import family, finite, metrics
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, Sniffed, Source

_MEASURED = {
    "prompt_tokens_total": "prompt_tokens",
    "prompt_seconds_total": "prompt_s",
    "tokens_predicted_total": "output_tokens",
    "tokens_predicted_seconds_total": "output_s",
    "prompt_tokens_seconds": "prompt_throughput_tok_s",
    "predicted_tokens_seconds": "output_throughput_tok_s",
    "n_decode_total": "steps",
    "n_busy_slots_per_decode": "running_mean",
    "n_tokens_max": "tokens_peak",
    "kv_cache_usage_ratio": "kv_usage",
    "kv_cache_tokens": "kv_tokens",
}


_HARMLESS = re.compile(
    r"(?:^|\.)(?:chat_template\w*|bos_token|eos_token|modalities|endpoint_\w+|webui\w*|api_key|"
    r"params|next_token|prompt|id_task|is_sleeping|model_alias|n_past|generated|cors_\w+)$"
)


def _slots_of(source: Sniffed) -> list[Any]:
    """The list of slots, if the source is an answer of /slots; else empty."""
    slots = source.document
    if not isinstance(slots, list) or not slots:
        return []
    known = all(
        isinstance(slot, dict) and {"id", "n_ctx", "is_processing"} <= slot.keys() for slot in slots
    )
    return slots if known else []


class LlamaAnswer(Source):
    """An answer of /props or /slots. If slots share a buffer, each slot reports the
    whole buffer.
    """

    rank = ENGINE_ITSELF
    what = "llama-server's /props or /slots"
    gives = SERVER
    harmless = _HARMLESS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognised by the keys of the answer."""
        return bool(_slots_of(source)) or source.has_keys("total_slots", "model_path")

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the number of slots, the context length of each, and the model."""
        found: dict[str, Any] = {"engine": "llama.cpp"}
        if slots := _slots_of(source):
            found["n_parallel"], found["n_ctx_seq"] = len(slots), slots[0]["n_ctx"]
            for slot in slots:
                fields = Fields(slot, source.name, source.ledger, "slot")
                for key in ("id", "n_ctx", "is_processing"):
                    fields.get(key)
            return Description(ServerSettings.parse(found, source.name))
        answer = source.fields()
        path, build = answer.get("model_path"), answer.get("build_info")
        if isinstance(path, str) and path:
            found["model"] = model_name(path)
        if isinstance(build, str) and build:
            found["engine_version"] = build.partition("-")[0]
        found["n_parallel"] = answer.get("total_slots")
        general = answer.get("default_generation_settings")
        if isinstance(general, dict) and "n_ctx" in general:
            found["n_ctx_seq"] = general["n_ctx"]
        return Description(ServerSettings.parse(found, source.name))


class LlamaMetrics(Source):
    """An answer of /metrics, with totals since the server started."""

    rank = ENGINE_ITSELF
    what = "a scrape of llama-server's /metrics"
    gives = SERVER | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the answer by the names of its metrics."""
        return source.document is None and source.text.lstrip().startswith(
            ("# HELP llamacpp:", "# TYPE llamacpp:", "llamacpp:")
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read totals, rates, and the mean number of busy slots."""
        measured = {}
        for name, _, value in metrics(source.string(), source.name, source.ledger):
            known = _MEASURED.get(name.removeprefix("llamacpp:"))
            if known and source.ledger is not None:
                source.ledger.take("metrics", "", family(name))
            if known and finite(value):
                measured[known] = value
        return Description(ServerSettings(engine="llama.cpp"), measured=measured)
