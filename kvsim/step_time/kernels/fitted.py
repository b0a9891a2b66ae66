"""`kind = "fitted"`: a step composed of kernels that rooflines, fitted on other devices, say."""

from typing import TYPE_CHECKING

from kvsim.step_time.kernels.options import ComposedOptions
from kvsim.step_time.options import Hardware

if TYPE_CHECKING:
    from kvsim.step_time.kernels.roofs import RoofTables


class FittedOptions(ComposedOptions):
    """A step's time as the sum of its layers' kernels and of the host's part.

    Each kernel is timed by a roofline with constants fitted over all devices with measured kernels.

    engine: source of the kernels, vllm or sglang (default: the scheduler's). engine_version: its
    host's part (default: the newest).

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

    def _tables(self, hardware: Hardware, engine: str, version: str | None) -> "RoofTables":
        from kvsim.step_time.kernels.roofs import RoofTables

        return RoofTables(hardware.device, engine)
