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

    scale, overhead_us, token_us, chunk_us: a step takes `scale * t + overhead_us + token_us * its
    tokens + chunk_us * its prompt chunks`. t is the time of the kernels and the host. prompt_scale:
    a factor on that for a step that computes prompts.
    """

    def _tables(self, hardware: Hardware, engine: str, version: str | None) -> "RoofTables":
        from kvsim.step_time.kernels.roofs import RoofTables

        return RoofTables(hardware.device, engine)
