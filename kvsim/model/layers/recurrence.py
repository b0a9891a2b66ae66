"""Recurrent mixers, with a state of constant size per sequence."""

from dataclasses import dataclass

from kvsim.model.weights import Weights


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent mixer (Mamba, gated delta rule): a state of constant size, whatever the context.

    linear_params, other_params: its parameters; conv_elements, ssm_elements: of its state;
    ssm_dtype: dtype of the second part (the first is in the model's dtype). conv_width: channels of
    the convolution, which keeps one more input of each for every drafted token. ssm_dtype_named:
    whether the config (mamba_ssm_dtype) or the user says that dtype; else it is vLLM's default.
    """

    linear_params: int
    other_params: int
    conv_elements: int
    ssm_elements: int
    ssm_dtype: str
    conv_width: int = 0
    ssm_dtype_named: bool = False

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters of the input, output and time-step projections; convolution and decay count as
        other.
        """
        return Weights(linear=self.linear_params // tp, other=self.other_params // tp)
