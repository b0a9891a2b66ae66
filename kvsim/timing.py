"""The step time of a scenario, the same for all of its allocators."""

from kvsim.capacity.drafter import Drafter
from kvsim.capacity.pool import SizedPool
from kvsim.device import Device
from kvsim.drafting import drafted_time
from kvsim.layout import KVLayout
from kvsim.model import Model
from kvsim.scenario import Scenario
from kvsim.step_time.form import StepTime
from kvsim.step_time.options import Hardware


def step_time_of(
    scenario: Scenario,
    model: Model,
    device: Device,
    layout: KVLayout,
    pool: SizedPool,
    drafter: Drafter | None,
) -> StepTime:
    """The time of a step on this device, with the drafter's passes where there is a drafter.
    layout: of the model without the drafter's layers.
    """
    options = scenario.model
    scheduler = scenario.scheduler_of(scenario.allocator[0])
    hardware = Hardware(
        model,
        device,
        options.tensor_parallel_size,
        layout,
        scenario.folder,
        options.data_parallel_size,
        options.enable_expert_parallel,
        scheduler.engine,
        scheduler.engine_version,
        pool.capacity_bytes // max(1, layout.bytes_per_token),
    )
    form = scenario.step_time.build(hardware)
    if scenario.speculative_config is None or drafter is None:
        return form
    return drafted_time(form, scenario.speculative_config, drafter, scenario.step_time, hardware)
