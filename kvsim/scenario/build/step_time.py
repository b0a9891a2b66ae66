"""The step time of a scenario, the same for all of its allocators."""

from collections.abc import Sequence
from itertools import pairwise

from kvsim.capacity.drafter import Drafter
from kvsim.capacity.pool import SizedPool
from kvsim.capacity.stage import model_of, stages
from kvsim.device import Device
from kvsim.layout import KVLayout
from kvsim.model import Model
from kvsim.plumbing.units import FS_PER_PS, PS_PER_S, PS_PER_US
from kvsim.scenario import Scenario
from kvsim.scenario.build.drafter import drafted_time
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.form import StepTime
from kvsim.step_time.options import Hardware
from kvsim.step_time.stages import StageTimes
from kvsim.support.parts import STAGES, ServerParts
from kvsim.support.table import check

SENT_TENSORS = 2  # the hidden states and their residual
SEND_US = 10  # latency of a copy between two GPUs, that of an all-reduce of the roofline


def step_time_of(
    scenario: Scenario,
    model: Model,
    devices: Sequence[Device],
    layout: KVLayout,
    pool: SizedPool,
    drafter: Drafter | None,
) -> StepTime:
    """The step time model, including the drafter's passes if there is a drafter. devices: device of
    each pipeline stage. layout: KV of the model without the drafter's layers.
    """
    options = scenario.model
    scheduler = scenario.scheduler_of(scenario.allocator[0])
    hardware = Hardware(
        model,
        devices[0],
        options.tensor_parallel_size,
        layout,
        scenario.folder,
        options.data_parallel_size,
        options.enable_expert_parallel,
        scheduler.engine,
        scheduler.engine_version,
        pool.capacity_bytes // max(1, layout.bytes_per_token),
        enforce_eager=scenario.memory.enforce_eager,
    )
    if options.pipeline_parallel_size > 1:
        return _staged(scenario, hardware, devices, drafter)
    form = scenario.step_time.build(hardware)
    if scenario.speculative_config is None or drafter is None:
        return form
    return drafted_time(form, scenario.speculative_config, drafter, scenario.step_time, hardware)


def _staged(
    scenario: Scenario, hardware: Hardware, devices: Sequence[Device], drafter: Drafter | None
) -> StageTimes:
    """The step times of each pipeline stage, for its own layers on its own device. A transfer takes
    the slower link of its two stages. The drafter is on the last stage.
    """
    options, model, form = scenario.model, hardware.model, scenario.step_time
    count = options.pipeline_parallel_size
    if STAGES not in form.serves:
        check(ServerParts(stages=count, whole_form=STEP_TIMES.name_of(form)))
    parts = [model_of(model, each) for each in stages(model.layers, count, options.stage_layers)]
    whole = hardware._replace(pipeline_layout=hardware.layout)
    forms = [
        form.build(whole._replace(model=part, device=device, layout=options.layout(part)))
        for part, device in zip(parts, devices, strict=True)
    ]
    config = scenario.speculative_config
    if config is not None and drafter is not None:
        there = hardware._replace(device=devices[-1])
        forms[-1] = drafted_time(forms[-1], config, drafter, form, there)
    bits = model.weight_format.plain(model.torch_dtype).other_bits
    token_bytes = SENT_TENSORS * model.hidden_size * bits / 8
    rates = [min(one.peer_bytes_per_s, other.peer_bytes_per_s) for one, other in pairwise(devices)]
    token_fs = [round(FS_PER_PS * token_bytes * PS_PER_S / rate) for rate in rates]
    return StageTimes(forms, SEND_US * PS_PER_US, token_fs)
