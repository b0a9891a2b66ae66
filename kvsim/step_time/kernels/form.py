"""`kind = "kernels"`: a step composed of its layers' measured kernels."""

from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.device import own_figures
from kvsim.plumbing.shipped import shipped_folder
from kvsim.step_time.kernels.missing import NotMeasured
from kvsim.step_time.kernels.options import ComposedOptions
from kvsim.step_time.options import Hardware

if TYPE_CHECKING:
    from kvsim.step_time.kernels.tables import KernelLookup


class KernelOptions(ComposedOptions):
    """A step's time as the sum of its layers' kernels, measured on the device, and of the host's
    part.

    engine: source of the kernels, vllm or sglang (default: the scheduler's). engine_version: tables
    of the newest version that is not newer, and its host's part (default: the newest). tables: a
    folder of tables that `kvsim calibrate kernels` made (default: those that ship with kvsim).
    Kernels that yours lack take the fitted rooflines, and the result names them.

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

    tables: Path | None = None

    def _tables(self, hardware: Hardware, engine: str, version: str | None) -> "KernelLookup":
        from kvsim.step_time.kernels.filled import FilledTables
        from kvsim.step_time.kernels.roofs import RoofTables
        from kvsim.step_time.kernels.tables import KernelTables

        tables = KernelTables(self._path(hardware, engine), version)
        if self.tables is not None:
            tables.source += f" of {self.tables}"
            return FilledTables(tables, RoofTables(hardware.device, engine))
        tables.shipped = True
        return tables

    def _path(self, hardware: Hardware, engine: str) -> Path:
        """The tables of the device; InputError names those that there are."""
        from kvsim.step_time.kernels.tables import SUFFIX

        folder = shipped_folder("calibration") / "kernels"
        if self.tables is not None:
            folder = hardware.folder / self.tables
        elif given := own_figures(hardware.device):
            raise NotMeasured(
                f"kernels of {hardware.device.name} were measured with other figures",
                where="device",
                value=", ".join(given),
                remedy='choose step_time.kind = "fitted"',
            )
        path = folder / f"{hardware.device.name}-{engine}{SUFFIX}"
        if not path.is_file():
            known = ", ".join(sorted(each.stem for each in folder.glob(f"*{SUFFIX}")))
            raise NotMeasured(
                f"no kernels of {engine} were measured on this device",
                where="device.name",
                value=hardware.device.name,
                limit=f"tables in {folder}: {known or 'none'}",
                remedy='choose step_time.kind = "fitted", or `kvsim calibrate kernels` your own',
            )
        return path
