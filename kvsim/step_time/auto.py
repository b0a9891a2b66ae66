"""`kind = "auto"`, the default: kernels where they were measured, else the roofline."""

from kvsim.step_time.form import StepTime
from kvsim.step_time.options import Hardware, StepTimeOptions


class Auto(StepTimeOptions):
    """`kernels` where its tables have the device, the model's dtypes and its kinds of attention,
    else `roofline`; the result's provenance and its notes say which, and why.
    """

    def build(self, hardware: Hardware) -> StepTime:
        """The form for this hardware; InputError if the model cannot be split so."""
        from kvsim.step_time import STEP_TIMES
        from kvsim.step_time.kernels.missing import NotMeasured
        from kvsim.step_time.roofline_form import RooflineForm

        hardware.model.check_tensor_parallel(hardware.tensor_parallel_size)
        try:
            return STEP_TIMES.parse({"kind": "kernels"}, "step_time").build(hardware)
        except NotMeasured as error:
            form = STEP_TIMES.parse({"kind": "roofline"}, "step_time").build(hardware)
            assert isinstance(form, RooflineForm)
            return form.sourced(f"the roofline, because {error.what} ({error.value})")
