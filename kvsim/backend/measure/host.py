"""What was measured on, and with which software."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

Facts = dict[str, object]


def device_facts(device: str) -> Facts:
    """Name, size and state of the device."""
    load = [round(figure, 2) for figure in os.getloadavg()]
    if not device.startswith("cuda"):
        return {"name": _cpu_name(), "cores": os.cpu_count(), "load": load}
    facts = torch.cuda.get_device_properties(device)
    return {
        "name": facts.name,
        "sms": facts.multi_processor_count,
        "l2_bytes": facts.L2_cache_size,
        "memory_bytes": facts.total_memory,
        "host": _cpu_name(),
        "load": load,
        **_nvidia_smi(),
    }


def software_facts(device: str) -> Facts:
    """Versions of what ran."""
    facts: Facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "cuda": torch.version.cuda,
    }
    if device.startswith("cuda"):
        try:
            facts["triton"] = version("triton")
        except PackageNotFoundError:
            facts["triton"] = None
    return facts


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _nvidia_smi() -> Facts:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    fields = "driver_version,clocks.sm,clocks.mem,clocks.max.sm"
    command = [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits", "--id=0"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - a fixed command
    values = [value.strip() for value in said.stdout.strip().split(",")]
    if said.returncode or len(values) != 4:
        return {}
    names = ("driver", "sm_clock_mhz", "memory_clock_mhz", "max_sm_clock_mhz")
    return dict(zip(names, values, strict=True))
