"""`kind = "auto"`, the default: kernels where they were measured, else rooflines."""

from kvsim.plumbing.errors import InputError
from kvsim.step_time.form import StepTime
from kvsim.step_time.kernels.options import ComposedOptions
from kvsim.step_time.options import Hardware


class Auto(ComposedOptions):
    """The first form that applies of `kernels`, `fitted` and `roofline`. The result's provenance
    and notes say which one, and why.

    `kernels` needs tables for the device, the model's dtypes and its kinds of attention. `fitted`
    needs the dtypes and attention alone. `roofline` always applies.

    engine, engine_version, tuned, enforce_eager, scale, overhead_us and the other numbers: as with
    `kernels`. The roofline takes the numbers alone.
    """

    def build(  # type: ignore[override] # the roofline composes no kernels
        self, hardware: Hardware
    ) -> StepTime:
        """The form for this hardware; InputError if the model cannot be split so."""
        from kvsim.step_time import STEP_TIMES
        from kvsim.step_time.kernels.composed import KernelSteps
        from kvsim.step_time.kernels.missing import NotMeasured
        from kvsim.step_time.roofline_form import RooflineForm

        hardware.model.check_tensor_parallel(hardware.tensor_parallel_size)
        missing: InputError | None = None
        given = self.model_dump(exclude_unset=True, exclude={"kind"})
        for kind in ("kernels", "fitted"):
            try:
                form = STEP_TIMES.parse({"kind": kind, **given}, "step_time").build(hardware)
            except NotMeasured as error:
                missing = missing or error
                continue
            assert isinstance(form, KernelSteps)
            if missing is not None:
                form.source += _because(missing)
            return form
        assert missing is not None
        roofline = STEP_TIMES.parse({"kind": "roofline"}, "step_time").build(hardware)
        assert isinstance(roofline, RooflineForm)
        return roofline.corrected(self.correction()).sourced(f"the roofline{_because(missing)}")


def _because(missing: InputError) -> str:
    return f", because {missing.what} ({missing.value})"
