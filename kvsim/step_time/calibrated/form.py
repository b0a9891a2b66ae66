"""Step times out of a calibration file: what was measured, on this model and this device."""

from typing import TYPE_CHECKING

from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_US
from kvsim.step import StepShape
from kvsim.step_time.calibrated.formula import FormulaTime
from kvsim.step_time.correction import NONE, WHOLE_PPM, Correction
from kvsim.step_time.form import DecodeRun
from kvsim.step_time.options import Hardware, StepTimeOptions

if TYPE_CHECKING:
    from kvsim.step_time.calibrated.file import CalibrationFile

TABULATED_TOKENS = 8192  # g(T) up to here is looked up, not computed


class Calibrated(StepTimeOptions):
    """file: the name of a shipped calibration, or the path of one (it ends in .json).

    A step lasts scale * t + overhead + token * its tokens + chunk * its prefill chunks, where t is
    what the file says. overhead_us: a constant added to every step, for what the samples leave out
    (host time). It may be negative, for samples that hold more than a step, as long as no step can
    end before it began. token_us: of every token, as the all-reduces under tensor parallelism are,
    where the samples are of one GPU's kernels. chunk_us: of every prefill chunk. `kvsim validate
    run --fit` finds them on a recorded run.
    """

    file: str
    overhead_us: float = 0.0
    token_us: float = Field(0.0, ge=0)
    chunk_us: float = Field(0.0, ge=0)
    scale: float = Field(1.0, gt=0)

    def build(self, hardware: Hardware) -> "CalibratedTime":
        from kvsim.step_time.calibrated.file import find_calibration
        from kvsim.step_time.calibrated.identity import ModelIdentity

        calibration = find_calibration(self.file, "step_time.file", hardware.folder)
        calibration.check_device(hardware.device.name, "device.name")
        calibration.check_model(ModelIdentity.of(hardware.model), "model.name")
        calibration.check_tensor_parallel(
            hardware.tensor_parallel_size, "model.tensor_parallel_size"
        )
        correction = Correction(
            constant_ps=round(self.overhead_us * PS_PER_US),
            token_ps=round(self.token_us * PS_PER_US),
            chunk_ps=round(self.chunk_us * PS_PER_US),
            scale_ppm=round(self.scale * WHOLE_PPM),
        )
        return CalibratedTime(calibration, correction)


class CalibratedTime(FormulaTime):
    """The fitted formula of a calibration file, corrected."""

    __slots__ = ("_domain",)

    def __init__(self, calibration: "CalibrationFile", correction: Correction = NONE) -> None:
        fit = calibration.fit
        super().__init__(fit.formula, correction, tabulated_tokens=TABULATED_TOKENS)
        shortest_ps = self._g_ps(1)
        if shortest_ps <= 0:
            raise InputError(
                "the constant takes away more than the shortest step",
                where="step_time.overhead_us",
                value=correction.constant_ps / PS_PER_US,
                limit=f"above {(correction.constant_ps - shortest_ps) / PS_PER_US}",
            )
        self._domain = fit.domain

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Successive pure decode steps, as far as all are measured or none is."""
        run = super().decode_run(num_decode, context_tokens, longest_context_tokens)
        return run._replace(steps=self._domain.steps_in_domain(num_decode, context_tokens))

    def outside_domain(self, shape: StepShape) -> bool:
        """Whether the time of this step (it has a token) is extrapolated from the samples."""
        return self._domain.outside(shape)
