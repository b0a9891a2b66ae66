"""Keys outside [memory] that were given but have no effect."""

from collections.abc import Iterator

from kvsim.plumbing.options import Options
from kvsim.scenario import Scenario


def idle_keys(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Each key without effect, and the reason."""
    model, step_time, fleet = scenario.model, scenario.step_time, scenario.fleet
    if scenario.speculative_config is None and _changed(step_time, "draft_token_us"):
        yield "step_time.draft_token_us", "no tokens are drafted"
    gpus = model.tensor_parallel_size * model.data_parallel_size
    if gpus == 1 and _changed(step_time, "all_reduce_us"):
        yield "step_time.all_reduce_us", "one GPU computes each layer"
    if fleet is None or fleet.replicas != 1 or fleet.autoscaler is not None:
        return
    if "router" in fleet.model_fields_set:
        yield "fleet.router", "it has one replica to choose"


def _changed(options: Options, key: str) -> bool:
    return key in type(options).model_fields and bool(options.changed([key]))
