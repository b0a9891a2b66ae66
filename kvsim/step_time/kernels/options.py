"""Options of step times that are composed of kernels, wherever the kernels' times are from."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_US
from kvsim.step_time.correction import WHOLE_PPM, Correction
from kvsim.step_time.options import Hardware, StepTimeOptions

if TYPE_CHECKING:
    from kvsim.step_time.kernels.composed import KernelSteps
    from kvsim.step_time.kernels.host import HostCost
    from kvsim.step_time.kernels.tables import KernelLookup


class ComposedOptions(StepTimeOptions):
    """engine: whose kernels, vllm or sglang (default: the scheduler's). engine_version: its host's
    part (default: the newest).

    scale, overhead_us, token_us, chunk_us: a step takes `scale * t + overhead_us + token_us * its
    tokens + chunk_us * its prompt chunks`. t is the time of the kernels and the host. prompt_scale:
    a factor on that for a step that computes prompts.
    """

    by_layers: ClassVar[bool] = True

    engine: Literal["vllm", "sglang"] | None = None
    engine_version: str | None = None
    scale: float = Field(1.0, gt=0)
    prompt_scale: float = Field(1.0, gt=0)
    overhead_us: float = 0.0
    token_us: float = Field(0.0, ge=0)
    chunk_us: float = Field(0.0, ge=0)

    def build(self, hardware: Hardware, host: "HostCost | None" = None) -> "KernelSteps":
        """The form for this hardware; InputError where its kernels were not measured. host: instead
        of the tabulated part of the host.
        """
        from kvsim.step_time.kernels.compose import composed
        from kvsim.step_time.kernels.host import host_cost
        from kvsim.step_time.kernels.parts import Kernels, ModelSplit

        engine = self.engine or hardware.engine or "vllm"
        version = self.engine_version or hardware.engine_version
        model, tp, dp = hardware.model, hardware.tensor_parallel_size, hardware.data_parallel_size
        model.check_tensor_parallel(tp)
        split = ModelSplit(tp, dp, tp * dp if hardware.expert_parallel else 1)
        tables = self._tables(hardware, engine, version)
        kernels = Kernels(tables, hardware.device, model, split)
        layout = hardware.layout or model.kv_layout(tensor_parallel_size=tp)
        if host is None:
            host = host_cost(engine, version, hardware.device, model)
        form = composed(kernels, layout, host, hardware.pipeline_layout)
        correction = Correction(
            constant_ps=round(self.overhead_us * PS_PER_US),
            token_ps=round(self.token_us * PS_PER_US),
            chunk_ps=round(self.chunk_us * PS_PER_US),
            scale_ppm=round(self.scale * WHOLE_PPM),
        )
        form = form.corrected(correction)
        if tables.shipped and correction == Correction() and self.prompt_scale == 1:
            form.served = host.served
        form.prompts_ppm = round(self.prompt_scale * WHOLE_PPM)
        if form.shortest_ps() <= 0:
            raise InputError(
                "the constant takes away more than the shortest step",
                where="step_time.overhead_us",
                value=self.overhead_us,
            )
        return form

    def _tables(self, hardware: Hardware, engine: str, version: str | None) -> "KernelLookup":
        raise NotImplementedError(type(self).__name__)
