"""The models that the backend runs, by name, and the dtype that it runs them in."""

from pathlib import Path
from typing import Any

from kvsim.model.options import ModelOptions
from kvsim.plumbing.shipped import shipped_folder
from kvsim.scenario import Scenario


def find_model(name: str, dtype: str | None) -> ModelOptions:
    """A built-in model, one of those small enough for a CPU (calibration/models), or that of a
    config.json; InputError if there is no such model.
    """
    options = ModelOptions.parse({**_named(name), "dtype": dtype}, "--model")
    options.build()
    return options


def dtype_on(device: str, dtype: str | None) -> str | None:
    """The dtype of weights and cache: the one asked for, else float32 on a CPU.

    Few CPUs compute in half precision, and their times would be those of conversions. None: the
    model's.
    """
    return dtype or ("float32" if device == "cpu" else None)


def on_backend(scenario: Scenario, device: str, model: str | None = None) -> Scenario:
    """The scenario as the backend serves it: in the dtype of the device, and with another model if
    one is named.
    """
    table = scenario.model.model_dump(mode="json", exclude_none=True)
    if model is not None:
        own = {key: value for key, value in table.items() if key not in ("name", "hf_config")}
        table = own | _named(model)
    table["dtype"] = dtype_on(device, table.get("dtype"))
    return scenario.model_copy(update={"model": ModelOptions.parse(table, "--model")})


def _named(name: str) -> dict[str, Any]:
    """The keys of [model] that select the model of this name."""
    small = shipped_folder("calibration") / "models" / f"{name}.json"
    if small.is_file():
        return {"hf_config": small}
    if name.endswith(".json"):
        return {"hf_config": Path(name).resolve()}
    return {"name": name}
