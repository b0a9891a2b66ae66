"""The time of a step over the stages of a pipeline. Each stage computes its own layers, and sends
the hidden states and their residual to the next one.
"""

from collections.abc import Sequence

from kvsim.plumbing.units import FS_PER_PS
from kvsim.step import StepShape
from kvsim.step_time.form import DecodeRun, Measured, Sourced, StepTime


class StageTimes:
    """A form of the whole pipeline, made of the forms of its stages.

    forms: one a stage, in their order, at least two. send_ps: latency of sending a micro-batch to
    the next stage; token_fs: time of sending one token from each stage but the last, in
    femtoseconds.
    """

    def __init__(self, forms: Sequence[StepTime], send_ps: int, token_fs: Sequence[int]) -> None:
        self.forms = tuple(forms)
        sources = [form.source for form in self.forms if isinstance(form, Sourced)]
        self.source = "; ".join(dict.fromkeys(filter(None, sources)))
        self._measured = [form for form in self.forms if isinstance(form, Measured)]
        self._send_ps, self._token_fs = send_ps, tuple(token_fs)

    def stage_ps(self, shape: StepShape) -> list[int]:
        """Time in each stage, in ps, without the transfer to the next stage (see `send_ps`)."""
        return [form.step_ps(shape) for form in self.forms]

    def send_ps(self, num_tokens: int) -> list[int]:
        """Time of sending the activations of `num_tokens` tokens from each stage but the last to
        the next one, in ps.
        """
        if not num_tokens:
            return [0] * len(self._token_fs)
        return [self._send_ps + num_tokens * each_fs // FS_PER_PS for each_fs in self._token_fs]

    def step_ps(self, shape: StepShape) -> int:
        """Time from the first stage to the end of the last one, in ps, if all are free."""
        return sum(self.stage_ps(shape)) + sum(self.send_ps(shape.num_tokens))

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Durations of successive decode steps of an unchanged batch, with one step at a time in
        the pipeline.
        """
        runs = [
            form.decode_run(num_decode, context_tokens, longest_context_tokens)
            for form in self.forms
        ]
        steps = [run.steps for run in runs if run.steps is not None]
        sends_ps = sum(self.send_ps(num_decode))
        return DecodeRun(
            sum(run.first_ps for run in runs) + sends_ps,
            sum(run.growth_ps for run in runs),
            min(steps, default=None),
        )

    def outside_domain(self, shape: StepShape) -> bool:
        """Whether the time of any stage goes beyond what was measured."""
        return any(form.outside_domain(shape) for form in self._measured)
