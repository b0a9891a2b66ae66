"""Options of step times that are composed of kernels, wherever the kernels' times are from."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_US
from kvsim.step_time.correction import WHOLE_PPM, Correction
from kvsim.step_time.options import Hardware, StepTimeOptions
from kvsim.support.parts import STAGES

if TYPE_CHECKING:
    from kvsim.step_time.kernels.composed import KernelSteps
    from kvsim.step_time.kernels.host import HostCost
    from kvsim.step_time.kernels.tables import KernelLookup


class ComposedOptions(StepTimeOptions):
    """engine: source of the kernels, vllm or sglang (default: the scheduler's).

    engine_version: its host's part (default: the newest).

    tuned: whether the server has the flags of a published benchmark, such as fused all-reduces.
    Else its host's time is that of servers with default flags.
    enforce_eager: whether it runs without CUDA graphs (default: as [memory] says).

    scale, overhead_us, sequence_us, token_us, chunk_us, prompts_us, prompt_token_us: a step takes
    `scale * t + overhead_us + sequence_us * its sequences + token_us * its tokens + chunk_us * its
    prompt chunks`, and with prompts `prompts_us + prompt_token_us * their tokens` more. t is the
    time of the kernels and the host. prompt_scale: a factor on that for a step with prompts.
    prompt_launch_us: added to the least time that the kernels of a step with prompts take.
    fitted_on: the load that these numbers were fitted on, in words (`kvsim import` writes it).
    """

    serves: ClassVar[frozenset[str]] = frozenset((STAGES,))

    engine: Literal["vllm", "sglang"] | None = None
    engine_version: str | None = None
    tuned: bool = False
    enforce_eager: bool | None = None
    scale: float = Field(1.0, gt=0)
    prompt_scale: float = Field(1.0, gt=0)
    overhead_us: float = 0.0
    sequence_us: float = 0.0
    token_us: float = Field(0.0, ge=0)
    chunk_us: float = Field(0.0, ge=0)
    prompts_us: float = 0.0
    prompt_token_us: float = 0.0
    prompt_launch_us: float = 0.0
    fitted_on: str | None = None

    def build(self, hardware: Hardware, host: "HostCost | None" = None) -> "KernelSteps":
        """The form for this hardware; InputError where its kernels were not measured. host: instead
        of the tabulated part of the host.
        """
        from kvsim.step_time.kernels.compose import composed
        from kvsim.step_time.kernels.gate import FEW_BATCHES, FEW_CONTEXTS, fault
        from kvsim.step_time.kernels.graphs import GRAPH_SIZES
        from kvsim.step_time.kernels.host import host_cost
        from kvsim.step_time.kernels.missing import NotMeasured
        from kvsim.step_time.kernels.parts import Kernels, ModelSplit
        from kvsim.step_time.kernels.prior import ServerKind, prior_host

        engine = self.engine or hardware.engine or "vllm"
        version = self.engine_version or hardware.engine_version
        eager = hardware.enforce_eager if self.enforce_eager is None else self.enforce_eager
        model, tp, dp = hardware.model, hardware.tensor_parallel_size, hardware.data_parallel_size
        model.check_tensor_parallel(tp)
        split = ModelSplit(tp, dp, tp * dp if hardware.expert_parallel else 1)
        tables = self._tables(hardware, engine, version)
        kernels = Kernels(tables, hardware.device, model, split)
        layout = hardware.layout or model.kv_layout(tensor_parallel_size=tp)
        if host is None and self.tuned:
            host = host_cost(engine, version, hardware.device, model)
        if host is None:
            kind = ServerKind(engine, version, tp * dp, eager)
            host = prior_host(kind, hardware.device, model)
        form = composed(kernels, layout, host, hardware.pipeline_layout)
        if not eager:
            form.graph_sizes = GRAPH_SIZES[engine]
        whole = hardware.pipeline_layout is None  # of a stage's bytes some are other stages'
        if whole and (broken := fault(form, hardware, FEW_BATCHES, FEW_CONTEXTS)):
            raise NotMeasured(
                f"these step times break what every step must be: {broken}",
                where="step_time.kind",
                value=tables.name,
                remedy='choose step_time.kind = "fitted" or "roofline"',
            )
        correction = self.correction()
        form = form.corrected(correction)
        own = getattr(self, "tables", None) is not None
        if self.fitted_on is not None:
            form.served = "fitted"
        elif not own and correction == Correction() and self.prompt_scale == 1:
            form.served = host.served
        form.prompts_ppm = round(self.prompt_scale * WHOLE_PPM)
        if form.shortest_ps() <= 0:
            raise InputError(
                "the constant takes away more than the shortest step",
                where="step_time.overhead_us",
                value=self.overhead_us,
            )
        return form

    def correction(self) -> Correction:
        """The correction that these options add to a form."""
        return Correction(
            constant_ps=round(self.overhead_us * PS_PER_US),
            token_ps=round(self.token_us * PS_PER_US),
            chunk_ps=round(self.chunk_us * PS_PER_US),
            scale_ppm=round(self.scale * WHOLE_PPM),
            sequence_ps=round(self.sequence_us * PS_PER_US),
            prompts_ps=round(self.prompts_us * PS_PER_US),
            prompt_token_ps=round(self.prompt_token_us * PS_PER_US),
            prompt_launch_ps=round(self.prompt_launch_us * PS_PER_US),
        )

    def _tables(self, hardware: Hardware, engine: str, version: str | None) -> "KernelLookup":
        raise NotImplementedError(type(self).__name__)
