"""`kind = "fitted"`: a step composed of kernels that rooflines, fitted on other devices, say."""

from typing import TYPE_CHECKING

from kvsim.step_time.kernels.options import ComposedOptions
from kvsim.step_time.options import Hardware

if TYPE_CHECKING:
    from kvsim.step_time.kernels.roofs import RoofTables


class FittedOptions(ComposedOptions):
    """A step's time as the sum of its layers' kernels and of the host's part. Each kernel is timed
    by a roofline whose constants are fitted over all devices with measured kernels.

    engine: whose kernels, vllm or sglang (default: the scheduler's). engine_version: its host's
    part (default: the newest).

    scale, overhead_us, token_us, chunk_us: a step lasts scale * t + overhead + token * its tokens
    + chunk * its prompt chunks, where t is what the kernels and the host say. prompt_scale: a step
    that computes prompts lasts so many times as long as that.
    """

    def _tables(self, hardware: Hardware, engine: str, version: str | None) -> "RoofTables":
        from kvsim.step_time.kernels.roofs import RoofTables

        return RoofTables(hardware.device, engine)
