"""The control of the model, its parallelism and the type of its KV cache."""

from typing import Any, ClassVar

from dash.development.base_component import Component

from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import choice, labelled, typed
from kvsim.model import KV_CACHE_DTYPES, model_names


class ModelControl(Control):
    """A dropdown of the catalogue's models, and the keys that size the KV cache."""

    title: ClassVar[str] = "Model"

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        model = table["model"]
        return [
            labelled("name", choice("model.name", model_names(), model.get("name"))),
            labelled("max_model_len", typed("model.max_model_len", model.get("max_model_len"))),
            labelled(
                "tensor_parallel_size",
                typed("model.tensor_parallel_size", model.get("tensor_parallel_size"), 1),
            ),
            labelled(
                "kv_cache_dtype",
                choice(
                    "model.kv_cache_dtype",
                    ["auto", *KV_CACHE_DTYPES],
                    model.get("kv_cache_dtype", "auto"),
                ),
            ),
        ]

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        if key != "model.name" or table["model"].get("name") == value:
            return False
        held = {k: v for k, v in table["model"].items() if k not in ("hf_config", "max_model_len")}
        table["model"] = {**held, "name": value}
        return True
