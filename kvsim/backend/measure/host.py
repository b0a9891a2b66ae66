"""Facts of the machine and software of a measurement."""

import os
import platform
import shutil
import subprocess
import time
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

import torch

Facts = dict[str, object]


LEAST_CORE_SHARE = 0.9
LEAST_CLOCK_SHARE = 0.9
GEMM_SIDE = 8192


class Watch:
    """The state of a device from now until `facts`: what it is, and its other processes.

    before: its facts at the beginning.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.before = device_facts(device)
        self._wall_ns, self._cpu_ns = time.perf_counter_ns(), time.thread_time_ns()

    def facts(self) -> Facts:
        """Facts of the device; `load` before and after, and on a CPU how much of a core the thread
        had.

        On a GPU clocks are read under load.
        """
        facts = self.before | {"load_after": _load()}
        if self._device.startswith("cuda"):
            return facts | {"under_load": _under_load(self._device)}
        wall_ns = time.perf_counter_ns() - self._wall_ns
        return facts | {"core_share": round((time.thread_time_ns() - self._cpu_ns) / wall_ns, 3)}


def state_warnings(device: str, facts: Facts) -> list[str]:
    """Warnings from a `Watch`'s facts for readers of the samples."""
    if device.startswith("cuda"):
        return _clock_warnings(facts)
    if "core_share" not in facts:
        return ["the measurement was stopped before its machine's load was read"]
    share, most = float(str(facts["core_share"])), max(_numbers(facts, "load", "load_after"))
    if share < LEAST_CORE_SHARE:
        return [
            f"the thread had a core for {100 * share:.0f} % of the time: others were at work, "
            "and its steps took longer than on a machine of its own"
        ]
    cores = int(str(facts["cores"] or 1))
    return [f"the load was {most} on {cores} cores"] if most > cores else []


def _numbers(facts: Facts, *names: str) -> list[float]:
    found: list[float] = []
    for name in names:
        values = facts[name]
        assert isinstance(values, list)
        found.append(float(values[0]))
    return found


def _clock_warnings(facts: Facts) -> list[str]:
    loaded = facts.get("under_load")
    if not isinstance(loaded, dict):
        return ["the measurement was stopped before the clocks were read under load"]
    if not {"sm_clock_mhz", "max_sm_clock_mhz"} <= set(loaded):
        return ["nvidia-smi does not tell the clocks"]
    share = float(loaded["sm_clock_mhz"]) / float(loaded["max_sm_clock_mhz"])
    if share >= LEAST_CLOCK_SHARE:
        return []
    return [f"under load the GPU's clock is {100 * share:.0f} % of its highest"]


def device_facts(device: str) -> Facts:
    """Name, size and state of the device."""
    if not device.startswith("cuda"):
        return {"name": _cpu_name(), "cores": os.cpu_count(), "load": _load()}
    facts = torch.cuda.get_device_properties(device)
    return {
        "name": facts.name,
        "uuid": str(facts.uuid),
        "sms": facts.multi_processor_count,
        "l2_bytes": facts.L2_cache_size,
        "memory_bytes": facts.total_memory,
        "host": _cpu_name(),
        "load": _load(),
        "idle": _nvidia_smi(str(facts.uuid)),
    }


def _load() -> list[float]:
    return [round(figure, 2) for figure in os.getloadavg()]


def software_facts(device: str, packages: tuple[str, ...] = ()) -> Facts:
    """Versions of the software. packages: names by which those of the attention are imported."""
    facts: Facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "cuda": torch.version.cuda,
    }
    names = ("triton", *packages) if device.startswith("cuda") else packages
    installed = packages_distributions() if names else {}
    for name in names:
        try:
            facts[name] = version(installed.get(name, [name])[0])
        except PackageNotFoundError:
            facts[name] = None
    return facts


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _under_load(device: str) -> Facts:
    """The output of nvidia-smi while matrices are multiplied."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    a = torch.randn(GEMM_SIDE, GEMM_SIDE, dtype=torch.float16, device=device)
    for _ in range(1000):  # asked for at once, at work for a second or more
        a @ a
    output = _nvidia_smi(uuid)
    torch.cuda.synchronize(device)
    return output


def _nvidia_smi(uuid: str) -> Facts:
    """nvidia-smi's facts on the GPU that torch uses, whichever number nvidia-smi gives it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    names = ("driver", "sm_clock_mhz", "memory_clock_mhz", "max_sm_clock_mhz", "watts", "celsius")
    fields = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
    identity = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    command = [
        program,
        f"--query-gpu={fields}",
        "--format=csv,noheader,nounits",
        f"--id={identity}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - a fixed command
    values = [value.strip() for value in done.stdout.strip().split(",")]
    if done.returncode or len(values) != len(names):
        return {}
    known = zip(names, values, strict=True)
    return {name: value for name, value in known if not value.startswith("[")}  # as in [N/A]
