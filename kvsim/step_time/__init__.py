"""Step-time forms (`kind` of [step_time]): one module each, listed here."""

from kvsim.plumbing.registry import Registry
from kvsim.step_time.options import StepTimeOptions

STEP_TIMES: Registry[StepTimeOptions] = Registry(
    "step-time form",
    {
        "auto": "kvsim.step_time.auto:Auto",
        "kernels": "kvsim.step_time.kernels.form:KernelOptions",
        "fitted": "kvsim.step_time.kernels.fitted:FittedOptions",
        "roofline": "kvsim.step_time.roofline:Roofline",
        "linear": "kvsim.step_time.linear:Linear",
        "dynamo-mocker": "kvsim.step_time.mocker:DynamoMocker",
        "calibrated": "kvsim.step_time.calibrated.form:Calibrated",
    },
)
